// A room that has no sources of its own yet still is a library.
