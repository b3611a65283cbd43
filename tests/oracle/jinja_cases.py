#!/usr/bin/env python3
"""What Jinja, set up as transformers sets it up for chat templates, makes of
templates: the oracle of io/jinja_test.cc.

  jinja_cases.py fixture OUT.jsonl
      The templates written here, one construct each, with their texts.
  jinja_cases.py random OUT.jsonl COUNT [SEED]
      Random expressions over random values.
  jinja_cases.py chats OUT.jsonl COUNT CONFIG.json...
      COUNT generated conversations through the chat_template of each
      tokenizer_config.json; for ESPALIER_JINJA_CASES of io.jinja_test, never
      for the repository.

Each line: {"template", "variables", "text"}, or "error" instead of "text"
where rendering fails; the variables of the line before where there are none. Needs jinja2 3.1.6.
"""
import datetime
import json
import random
import sys

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

NOW = datetime.datetime(2026, 3, 7, 15, 4, 5)


class Generation(jinja2.ext.Extension):
    """The generation block, which shows its body."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"],
                                       drop_needle=True)
        call = self.call_method("_show")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _show(self, caller):
        return caller()


class TemplateNamespace(jinja2.utils.Namespace):

    def __init__(*args, **kwargs):
        self, args = args[0], args[1:]
        jinja2.utils.Namespace.__init__(self, dict(*args, **kwargs))


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True,
        extensions=[Generation, jinja2.ext.loopcontrols])

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None,
               sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent,
                          separators=separators, sort_keys=sort_keys)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    env.globals["dict"] = lambda *args, **kwargs: dict(*args, **kwargs)
    env.globals["namespace"] = TemplateNamespace
    return env


ENV = environment()


def case(template, variables):
    result = {"template": template, "variables": variables}
    try:
        result["text"] = ENV.from_string(template).render(**variables)
    except Exception as error:  # pylint: disable=broad-except
        result["error"] = type(error).__name__ + ": " + str(error)[:200]
    return result


def write(path, cases):
    counts = [0, 0]
    before = None
    with open(path, "w", encoding="ascii") as file:
        for result in cases:
            counts["error" in result] += 1
            variables = result["variables"]
            if variables is before:
                del result["variables"]
            before = variables
            file.write(json.dumps(result, separators=(",", ":")) + "\n")
    print(f"{counts[0]} texts, {counts[1]} errors in {path}")


VARIABLES = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "  Hi <b>there</b>\n"},
        {"role": "assistant", "content": "<think>\na\n</think>\n\nHello",
         "tool_calls": [{"type": "function", "function": {
             "name": "f", "arguments": {"x": 1, "y": [True, None, 2.5]}}}]},
        {"role": "tool", "content": "caf\u00e9 \u4e16\u754c \U0001f600"},
    ],
    "bos": "<s>",
    "n": 7,
    "f": 2.5,
    "z": 0,
    "neg": -3,
    "t": True,
    "no": None,
    "e": "",
    "s": "The quick brown Fox",
    "u": "Stra\u00dfe \u01c6 \u0391\u03a3 caf\u00e9",
    "l": [3, 1, 2],
    "w": ["b", "A", "c", "a"],
    "d": {"b": 1, "a": "x", "C": [1, 2]},
    "o": [{"k": 2, "v": "b", "in": {"x": 1}}, {"k": 1, "v": "a"},
          {"k": 2, "v": "A"}],
}

TEMPLATES = r'''
{% for i in [0] %}
   i = {{ i }}
{% endfor %}
====
  {{ n }}  {% if t %} a {% endif %}  b
====
a
  {%- if t -%}
  b
  {%- endif +%}
c
  {%+ if t %}d{% endif %}

e
====
{# gone #}
  {# gone with its line #}
x {#- both -#} y
====
{% raw %}{{ n }} {% if %}{% endraw %}|{%- raw -%} {{ n }} {%- endraw -%} |
====
{{ "a'b" }} {{ 'a"b' }} {{ 'tab\tnew\nslash\\ \x41 \u00e9 \101 \q' }}
====
{{ 'one' 'two' }}{{ "x" ~ 1 ~ none ~ true ~ 1.0 ~ [1, 'a'] }}
====
{{ 1 + 2 * 3 - 4 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 2 ** 3 ** 2 }} {{ 7 % -3 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 1_000 }} {{ 2 ** -1 }}
====
{{ 1e20 }} {{ 1e15 }} {{ 1e16 }} {{ 0.0001 }} {{ 0.00001 }} {{ 1.5e-7 }} {{ 100.0 }} {{ 1/3 }} {{ 3.0 }} {{ 123456789.125 }}
====
{{ true }} {{ True }} {{ none }} {{ None }} {{ false and 1 }} {{ 0 or 'x' }} {{ 1 and 'y' }} {{ not 1 }}
====
{{ [1, 'a', none, true, 2.0] }} {{ {'a': 1, 'b': [1]} }} {{ (1,) }} {{ (1, 2) }} {{ () }} {{ [] }} {{ {} }}
====
{{ ["it's", 'say "x"', 'both \' and "', 'nl\n', 'caf\u00e9', '\u200b\u0007'] }}
====
{{ 1 < 2 < 3 }} {{ 3 > 2 > 2 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 1 == 1.0 }} {{ 'a' != 'b' }} {{ 1 <= 1 >= 1 }}
====
{{ 'a' in 'cat' }} {{ 2 in l }} {{ 'a' in d }} {{ 'x' not in d }} {{ 3 not in l }} {{ 1 in range(3) }}
====
{{ 'yes' if n > 3 else 'no' }} [{{ 'yes' if n < 3 }}] {{ 1 if z else 2 if z else 3 }}
====
{% if z %}a{% elif no %}b{% elif n %}c{% else %}d{% endif %}{% if not missing %}e{% endif %}
====
{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}
====
{% for x in [] %}a{% else %}none{% endfor %}{% for k, v in d.items() %}{{ k }}={{ v }},{% endfor %}{% for (a, b) in [[1, 2]] %}{{ a }}{{ b }}{% endfor %}
====
{% for x in l if x > 1 %}{{ loop.index }}/{{ loop.length }}:{{ x }} {% else %}no{% endfor %}
====
{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %}
====
{% for x in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }}{% for y in w %}{% if loop.first %}{{ y }}{% endif %}{% endfor %}{% endfor %}
====
{% for c in 'aé世' %}[{{ c }}]{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for x in missing %}x{% endfor %}
====
{% set x = 1 %}{% for i in l %}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}
====
{% set ns = namespace(total=0, found=false) %}{% for i in l %}{% set ns.total = ns.total + i %}{% set ns.found = true %}{% endfor %}{{ ns.total }} {{ ns.found }} {{ ns.other is defined }} {{ ns['total'] }}
====
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set c = (3, 4) %}{{ c[1] }}{% set q %}block {{ a }}
{% endset %}[{{ q }}]{% set r | upper | trim %} up {% endset %}[{{ r }}]
====
{% macro m(a, b=2, c=a) %}{{ a }}-{{ b }}-{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(1, c=9) }}{{ m(b=5, a=4) }}{{ m() }}
====
{% macro r(n) %}{{ n }}{% if n > 0 %},{{ r(n - 1) }}{% endif %}{% endmacro %}{{ r(4) }}{{ r(2) | length }}
====
{% macro box(t) %}<{{ t }}>{{ caller() }}</{{ t }}>{% endmacro %}{% call box('b') %}in {{ n }}{% endcall %}{% macro each(xs) %}{% for x in xs %}{{ caller(x, loop.index) }}{% endfor %}{% endmacro %}{% call(x, i) each(l) %}{{ i }}={{ x }} {% endcall %}
====
{% set g = 1 %}{% macro m() %}{{ g }}{{ n }}{% set g = 5 %}{{ g }}{% endmacro %}{% set g = 2 %}{{ m() }}{{ g }}
====
{% with a = 1, b = n %}{{ a }}{{ b }}{% set a = 3 %}{{ a }}{% endwith %}{{ a is defined }}
====
{% filter upper | replace('A', '4') %}a b {{ s }}{% endfilter %}
====
{% generation %}g {{ n }}{% endgeneration %} {% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{% endgeneration %}{% endif %}{% endfor %}
====
{{ messages[0].role }} {{ messages[0]['content'] }} {{ messages[-1].role }} {{ messages.0.role }} {{ messages[99] }} {{ d.missing }} {{ d.items is defined }} {{ missing }} {{ d['zz'] is defined }}
====
{{ s[0] }}{{ s[-1] }} {{ s[4:9] }} {{ s[:3] }} {{ s[-3:] }} {{ s[::-1] }} {{ s[::2] }} {{ s[10:2:-2] }} {{ u[3:5] }} {{ u[::-1] }} {{ l[::-1] }} {{ l[1:] }} {{ l[:-1] }} {{ (1, 2, 3)[1:] }} {{ l[5:] }} {{ s[100] }}|
====
{{ messages[::-1] | map(attribute='role') | join(',') }} {{ messages[1:] | length }}
====
{{ '  x '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ ' a '.lstrip() }}|{{ ' a '.rstrip() }}|{{ 'a,b,,c'.split(',') }}|{{ ' a  b '.split() }}|{{ 'a b c'.split(' ', 1) }}|{{ 'a b c'.rsplit(' ', 1) }}|{{ 'a b  c'.split(none, 1) }}|{{ 'a b  c '.rsplit(none, 1) }}
====
{{ s.startswith('The') }} {{ s.endswith(('x', 'Fox')) }} {{ s.upper() }} {{ s.lower() }} {{ s.title() }} {{ s.capitalize() }} {{ "they're bill's".title() }} {{ s.replace('quick', 'slow') }} {{ 'aaa'.replace('a', 'b', 2) }} {{ 'ab'.replace('', '-') }}
====
{{ s.find('quick') }} {{ s.find('zz') }} {{ s.rfind('o') }} {{ 'banana'.count('an') }} {{ u.find('caf') }} {{ ', '.join(['a', 'b']) }} {{ 'a\nb\r\nc\n'.splitlines() }} {{ 'a\nb'.splitlines(true) }} {{ 'x1'.isdigit() }}{{ '12'.isdigit() }}{{ ' '.isspace() }} {{ 'prefix-x'.removeprefix('prefix-') }} {{ 'x.txt'.removesuffix('.txt') }}
====
{{ u.upper() }} {{ u.lower() }} {{ u.title() }} {{ u.capitalize() }} {{ u | upper }} {{ u | title }} {{ 'ΑΣ ΑΣΑ Σ' | lower }} {{ '\u0130\ufb01' | capitalize }}
====
{{ '{} {} {0}'.format(1, 2) if z else '' }}{{ '{} and {}'.format('a', n) }} {{ '{1}{0}{x}'.format(1, 2, x=3) }} {{ '{:>5}|{:<4}|{:^5}|{:05.2f}|{:,}|{:x}'.format('a', 'b', 'c', 3.14159, 1234567, 255) }} {{ '{{}}'.format() }} {{ '{!r}'.format('a') }}
====
{{ '%s is %d, %.2f %5s|%-5s|%05d %x %%' % ('a', 3, 2.5, 'r', 'l', 42, 255) }} {{ '%s' % n }} {{ '%(a)s-%(b)s' % {'a': 1, 'b': 2} }} {{ '%s!' | format(s) }} {{ '%r' % 'q' }}
====
{{ d.keys() | list }} {{ d.values() | list }} {{ d.items() | list }} {{ d.get('b') }} {{ d.get('q') }} {{ d.get('q', 5) }} {{ d.items() }} {{ d.keys() | length }}
====
{{ l + [4] }} {{ l * 2 }} {{ 'ab' * 3 }} {{ l.index(2) }} {{ w.count('a') }} {{ (1, 2) + (3,) }}
====
{{ messages | tojson }}
====
{{ messages | tojson(indent=2) }} {{ d | tojson(indent=0) }} {{ [] | tojson(indent=2) }} {{ {} | tojson(indent=1) }} {{ d | tojson(sort_keys=true) }} {{ d | tojson(separators=(',', ':')) }} {{ u | tojson(ensure_ascii=true) }} {{ u | tojson }}
====
{{ '<a href="x">&\u2028\x7f\x01/' | tojson }} {{ 1.0 | tojson }} {{ 1e30 | tojson }} {{ none | tojson }} {{ true | tojson }} {{ {1: 2, none: 3, true: 4, 1.5: 5} | tojson }} {{ (1, 2) | tojson }} {{ 'é\U0001f600' | tojson(true) }}
====
{{ '  a b ' | trim }}|{{ 'xax' | trim('x') }}|{{ s | upper }}|{{ s | lower }}|{{ s | capitalize }}|{{ s | title }}|{{ s | replace('o', '0') }}|{{ s | replace('o', '0', 1) }}|{{ s | length }}|{{ 42 | string + 'x' }}|{{ 'hello-world (foo) [bar' | title }}
====
{{ l | join }} {{ l | join(', ') }} {{ o | join('+', attribute='v') }} {{ l | first }} {{ l | last }} {{ [] | first }} {{ l | sum }} {{ o | sum('k') }} {{ l | max }} {{ w | min }} {{ w | min(case_sensitive=true) }} {{ l | min }} {{ [] | sum }} {{ o | max(attribute='k') }}
====
{{ missing | default('x') }} {{ '' | default('x') }}|{{ '' | default('x', true) }} {{ none | default('x') }} {{ missing | d }}| {{ missing.x | default('y') if z else 1 }} {{ d.q | default('q') }}
====
{{ l | sort }} {{ l | sort(reverse=true) }} {{ w | sort }} {{ w | sort(case_sensitive=true) }} {{ o | sort(attribute='k') | map(attribute='v') | list }} {{ o | sort(attribute='k,v') | map(attribute='v') | list }} {{ d | dictsort }} {{ d | dictsort(true) }} {{ {'a': 2, 'b': 1} | dictsort(by='value') }} {{ {'a': 2, 'b': 1} | dictsort(reverse=true) }}
====
{{ w | map('upper') | list }} {{ o[:1] | map(attribute='in.x') | list }} {{ o | map(attribute='q', default='z') | list }} {{ l | select('odd') | list }} {{ l | reject('odd') | list }} {{ l | select('greaterthan', 1) | list }} {{ l | select | list }} {{ o | selectattr('k', 'equalto', 2) | map(attribute='v') | join }} {{ o | rejectattr('k', 'eq', 2) | list | length }} {{ o | selectattr('in') | list | length }} {{ o | selectattr('in', 'defined') | list | length }}
====
{{ w | unique | list }} {{ w | unique(true) | list }} {{ [1, 1.0, true, 2] | unique | list }} {{ w | reverse | list }} {{ s | reverse }} {{ l | list }} {{ 'abc' | list }} {{ d | list }} {{ d | items | list }} {{ missing | items | list }} {{ [1, 2, 3, 4, 5] | batch(2) | list }} {{ [1, 2, 3] | batch(2, 'x') | list }}
====
{{ '42' | int }} {{ '42.9' | int }} {{ 'x' | int }} {{ 'x' | int(5) }} {{ '0x1F' | int(base=16) }} {{ '1_000' | int }} {{ 3.9 | int }} {{ -3.9 | int }} {{ true | int }} {{ none | int(7) }} {{ '3.5' | float }} {{ 'x' | float }} {{ '1e3' | float }} {{ 2 | float }} {{ ' 12 ' | int }} {{ 'inf' | float }} {{ '-7' | int }}
====
{{ -5 | abs }} {{ (-5) | abs }} {{ neg | abs }} {{ 2.5 | round }} {{ 3.5 | round }} {{ 42.55 | round(1) }} {{ 2.675 | round(2) }} {{ 42.51 | round(1, 'floor') }} {{ 42.51 | round(0, 'ceil') }} {{ 5 | round }} {{ 42.7 | round | int }} {{ -2.5 | round }}
====
{{ 'a\nb\n\nc' | indent }}|{{ 'a\nb' | indent(2, true) }}|{{ 'a\n\nb' | indent(2, blank=true) }}|{{ 'a\nb' | indent('> ') }}|{{ 'a\n' | indent }}|{{ '' | indent(first=true) }}
====
{{ 'foo bar baz qux' | truncate(9) }} {{ 'foo bar baz qux' | truncate(9, true) }} {{ 'foo bar baz qux' | truncate(11) }} {{ 'foo bar baz qux' | truncate(11, false, '...', 0) }} {{ 'ab' | center(7) }}|
====
{{ n is defined }} {{ missing is undefined }} {{ no is none }} {{ s is string }} {{ n is number }} {{ t is number }} {{ n is integer }} {{ t is integer }} {{ f is float }} {{ d is mapping }} {{ l is sequence }} {{ s is sequence }} {{ d is sequence }} {{ n is sequence }} {{ l is iterable }} {{ n is iterable }} {{ t is boolean }} {{ t is true }} {{ t is false }} {{ missing is sequence }} {{ missing is iterable }} {{ missing is callable }}
====
{{ 3 is odd }} {{ 3 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ 'a' is in 'abc' }} {{ 'a' is in ['b'] }} {{ n is equalto 7 }} {{ n is eq 8 }} {{ n is gt 3 }} {{ n is lessthan(3) }} {{ 'a' is lower }} {{ 'A1' is upper }} {{ '1' is upper }} {{ none is sameas none }} {{ t is sameas true }} {{ n is not string }} {{ s is not none and n is defined }} {{ n is ge 7 }} {{ n is ne 7 }} {{ range is callable }}
====
{{ range(3) | list }} {{ range(1, 4) | list }} {{ range(5, 0, -2) | list }} {{ range(3) }} {{ range(3) | length }} {{ range(0) | list }} {{ range(4)[2] }} {{ range(1, 9, 3) }}
====
{{ dict(a=1, b=2) }} {{ dict([('a', 1)]) }} {{ dict(d, z=3) }} {{ {'a': 1}.get('a') }} {{ {'x': {'y': 5}}.x.y }} {{ {1: 'a'}[1] }} {{ {'a': 1, 'a': 2} }} {{ dict(**d) | length }}
====
{{ strftime_now('%Y-%m-%d %H:%M:%S %d %b %Y %B %A %a %y %j %I %p %-d %-m %%') }}
====
{{ '<b>&"\'' | e }} {{ s | safe }} {{ '<' | escape }}
====
{{ s | upper | lower | title | replace(' ', '_') }} {{ -n | abs }} {{ n | string | length + 1 }} {{ not n is none }} {{ (n, s) | length }} {{ - n }} {{ + n }} {{ -2 ** 2 }}
====
{% for m in messages %}{{ loop.index }}:{{ m.role }}{% if m.tool_calls %}{% for c in m.tool_calls %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}{% endif %}{% if not loop.last %}, {% endif %}{% endfor %}
====
{%- for message in messages -%}
    {%- set content = message.content -%}
    {%- if '</think>' in content -%}
        {%- set content = content.split('</think>')[-1].lstrip('\n') -%}
    {%- endif -%}
    {{- '<|' + message.role + '|>\n' + content | trim + '<|end|>\n' -}}
{%- endfor -%}
====
{% if true %}
  text
{% else %}
{% endif %}

last line without end
====
{{ n }}
{{ s }}


====
line{% set a = 1 %}
 next{{ '\n' }}  {% set b = 2 %}  end{# c #}
x
====
{%if n%}tight{%endif%}{{n}}{{-n}}{{n-}}
 y
====
{% for x in l %}{% set outer = loop %}{% for y in w[:2] %}{{ outer.index }}{{ loop.index }}{{ y }} {% endfor %}{% endfor %}
====
{{ [1, [2, [3]]] == [1, [2, [3]]] }} {{ {'a': [1]} == {'a': [1]} }} {{ (1,) == [1] }} {{ missing == missing }} {{ missing == none }} {{ 'a' == 1 }} {{ true == 1 }}
====
{{ loop is defined }} {{ caller is defined }} {{ 'a' ~ missing ~ 'b' }} {{ missing | length }} {{ missing | upper }}| {{ missing | list }} {{ missing | trim }}|
====
{% set x = [1, 2] %}{% set x = x + [3] %}{{ x }}{% set y = dict(d, k=x) %}{{ y.k[-1] }}
====
{{ (o | first).in.x }} {{ o[1].in is defined }} {{ (o | map(attribute='k') | list)[0] }} {{ o | map('attr', 'k') | list if z else 'w' }}
====
{% set tools = none %}{{ tools is not none and tools | length > 0 }} {% set tools = [] %}{{ true if tools else false }}
====
{{ None | map('upper') | list }} {{ 0 | select | list }} {{ [none, none] | sort if z else 'k' }} {{ ['x', 'y'] | map('replace', 'x', 'z') | join }} {{ w | map('indent', 2, true) | join('|') }}
====
{{ 1.0 * 3 }} {{ 10 / 4 }} {{ 10 // 4.0 }} {{ 1e3 | int }} {{ 0.1 + 0.2 }} {{ 5 % 0.3 }} {{ true + true }} {{ 3 * true }} {{ 7 // -2.0 }} {{ -0.0 }}
'''

ERRORS = r'''
{{ missing.x }}
====
{{ missing + 1 }}
====
{{ 'a' + 1 }}
====
{{ none + 'a' }}
====
{{ 1 / 0 }}
====
{{ l.append(1) }}
====
{{ d.update({}) }}
====
{{ raise_exception('no') }}
====
{% if n %}
====
{% endfor %}
====
{{ n
====
{{ 'a }}
====
{{ n }} {# open
====
{{ (1 }}
====
{% for x in n %}{% endfor %}
====
{% for a, b in [[1]] %}{% endfor %}
====
{% set n.x = 1 %}
====
{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}
====
{% macro m(a) %}{% endmacro %}{{ m(b=2) }}
====
{{ n() }}
====
{{ 'a' < 1 }}
====
{{ [3, 'a'] | sort }}
====
{{ missing | tojson }}
====
{{ 1 in n }}
====
{{ 'a' | nofilter }}
====
{{ 'a' is notest }}
====
{{ l | map('upper') | length }}
====
{{ l | select | last }}
====
{{ missing[0] }}
====
{{ missing() }}
====
{{ ''.join([1]) }}
====
{{ 'a'.split('') }}
====
{{ no[1:] }}
====
{{ l['a':] }}
====
{{ s[::0] }}
====
{{ range(1000000) }}
====
{{ -'a' }}
====
{{ n is defined is none }}
====
{{ '%d' % 'a' }}
====
{{ '%s %s' % 'a' }}
====
{{ '{} {}'.format(1) }}
====
{{ l | first(1) }}
====
{{ (l | map('string'))[0] + 'x' }}
====
{{ {[1]: 2} }}
====
{{ ns.x }}
====
{% break %}
====
{{ 1 + }}
====
{{ a b }}
====
{{ x.1y }}
====
{% set true = 1 %}
====
{{ none | length }}
====
{{ n | list }}
====
{{ '' | dictsort }}
====
{{ 5 | items | list }}
====
{{ s.nomethod() }}
====
{{ l[0].x.y }}
====
{{ ' ' | int + 'a' }}
'''


def split(text):
    """The templates of a list, their first newline taken off."""
    return [part[1:] if part.startswith("\n") else part
            for part in text.split("\n====")]


# --- random expressions ----------------------------------------------------

TEXTS = ["", "a", "Ab c", "  x\t\n", "caf\u00e9", "\u4e16\u754c", "<b>\"'",
         "1", "2.50", "-3", "a,b,,c", "\U0001f600", "\u00dfTRA\u00dfE",
         "\u03a3\u0391\u03a3", "x\ny\r\nz\n", "\u01c6", "it's", "\\n", "None"]


class Random:
    """Draws expressions that are mostly of the right types."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def pick(self, items):
        return self.rng.choice(items)

    def value(self, depth=0):
        kind = self.rng.randrange(9 if depth < 2 else 6)
        if kind == 0:
            return None
        if kind == 1:
            return self.pick([True, False])
        if kind == 2:
            return self.pick([0, 1, 2, -1, 7, 10**6, -12])
        if kind == 3:
            return self.pick([0.5, -2.25, 1e16, 1e-5, 3.0, 0.1])
        if kind in (4, 5):
            return self.pick(TEXTS)
        if kind in (6, 7):
            return [self.value(depth + 1)
                    for _ in range(self.rng.randrange(4))]
        return {self.pick(["a", "b", "key", "caf\u00e9", "items"]):
                self.value(depth + 1) for _ in range(self.rng.randrange(4))}

    def literal(self):
        return self.pick(["0", "1", "2", "-1", "3", "1.5", "''", "'a'", "'b'",
                          "' '", "'\\n'", "none", "true", "false", "[]",
                          "['a', 'b', 'a']", "[1, 2, 3]", "{}", "'caf\u00e9'",
                          "{'a': 1, 'b': 'x'}", "(1, 'b')", "range(3)"])

    def expr(self, depth=0):
        rng = self.rng
        if depth > 3 or rng.random() < 0.2:
            return self.pick(["v0", "v1", "v2", "v3", "undef"]) if (
                rng.random() < 0.6) else self.literal()
        sub = lambda: self.expr(depth + 1)
        kind = rng.randrange(12)
        if kind == 0:
            return f"({sub()} {self.pick(['+', '-', '*', '/', '//', '%'])} {sub()})"
        if kind == 1:
            return f"({sub()} ~ {sub()})"
        if kind == 2:
            return (f"({sub()} {self.pick(['==', '!=', '<', '<=', '>', 'in', 'not in'])}"
                    f" {sub()})")
        if kind == 3:
            return f"({sub()} {self.pick(['and', 'or'])} {sub()})"
        if kind == 4:
            return f"({sub()} if {sub()} else {sub()})"
        if kind == 5:
            bound = lambda: self.pick(["", "0", "1", "-1", "2", "5", "-3"])
            step = self.pick(["", "", ":2", ":-1", ":-2", ":"])
            # jinja2 folds slices of constants, which then never fail.
            base = self.pick(["v0", "v1", "v2", "v3", "(v1 | list)", "(v2 ~ 'ab')"])
            return f"{base}[{bound()}:{bound()}{step}]"
        if kind == 6:
            return f"{sub()}[{self.pick(['0', '-1', '1', chr(39) + 'a' + chr(39)])}]"
        if kind == 7:
            return f"({sub()} is {self.pick(['', 'not '])}" + self.pick([
                "defined", "none", "string", "number", "mapping", "sequence",
                "iterable", "boolean", "integer", "float", "true", "upper",
                "lower", "odd", "even", "divisibleby 2", "in 'abc'",
                "eq 1", "sameas none"]) + ")"
        if kind == 8:
            return f"{sub()}." + self.pick([
                "strip()", "lstrip('a ')", "rstrip()", "split()", "split(',')",
                "split('a', 1)", "rsplit(none, 1)", "upper()", "lower()",
                "title()", "capitalize()", "replace('a', 'xy')",
                "startswith('a')", "endswith(('a', 'b'))", "find('b')",
                "splitlines()", "join(['p', 'q'])", "count('a')", "a", "b",
                "items()", "keys()", "get('a')", "get('zz', 3)", "items",
                "isdigit()", "index(1)"])
        return f"({sub()} | " + self.pick([
            "upper", "lower", "title", "capitalize", "trim", "length", "list",
            "join(',')", "first", "last", "default('d')", "default('d', true)",
            "tojson", "tojson(indent=1)", "string", "int", "float", "abs",
            "round(1)", "sort", "reverse", "unique | list", "map('string') | list",
            "select | list", "reject('string') | list", "sum", "min", "max",
            "replace('a', 'b')", "indent(2)", "dictsort", "items | list",
            "map(attribute='a') | list", "selectattr('a') | list", "count",
            "batch(2) | list", "truncate(3, true, '')", "sort(reverse=true)",
            "map('default', 'q') | join('-')", "center(5)"]) + ")"

    def template(self):
        expr = self.expr()
        kind = self.rng.randrange(6)
        if kind == 0:
            return "{% for x in " + expr + " %}[{{ x }}]{% else %}-{% endfor %}"
        if kind == 1:
            return "{% set x = " + expr + " %}{{ x }}|{{ x | string | length }}"
        if kind == 2:
            return "{% if " + expr + " %}yes{% else %}no{% endif %}"
        return "{{ " + expr + " }}"


def random_cases(count, seed):
    drawn = Random(seed)
    for _ in range(count):
        variables = {f"v{i}": drawn.value() for i in range(4)}
        yield case(drawn.template(), variables)


# --- conversations ----------------------------------------------------------

WORDS = ["hello", "World", "na\u00efve", "\u4e16\u754c", "\U0001f600", "<think>",
         "</think>", "<tool_response>", "</tool_response>", "\n", "\n\n", "  ",
         "{\"a\": 1}", "<|im_end|>", "'", "\"", "\\", "3.14", "&amp;", "\t"]


class Chats:

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def text(self):
        rng = self.rng
        if rng.random() < 0.1:
            return rng.choice(["", " ", "\n", "x\n\n", "\n<think>\n\n</think>\n\ny"])
        return "".join(rng.choice(WORDS) + rng.choice([" ", "", " "])
                       for _ in range(rng.randrange(1, 9)))

    def arguments(self):
        rng = self.rng
        value = {rng.choice(["x", "city", "caf\u00e9", "n"]): rng.choice(
            [1, 2.5, None, True, "a\"b", [1, "\u4e16"], {"k": []}, -7, 1e-7])
            for _ in range(rng.randrange(3))}
        return json.dumps(value) if rng.random() < 0.5 else value

    def assistant(self):
        rng = self.rng
        message = {"role": "assistant", "content": self.text()}
        if rng.random() < 0.3:
            message["content"] = f"<think>\n{self.text()}\n</think>\n\n{self.text()}"
        if rng.random() < 0.25:
            message["reasoning_content"] = rng.choice([self.text(), None, ""])
        if rng.random() < 0.3:
            function = {"name": rng.choice(["f", "get_weather"]),
                        "arguments": self.arguments()}
            call = {"type": "function", "id": "1", "function": function}
            message["tool_calls"] = [call if rng.random() < 0.7 else function
                                     for _ in range(rng.randrange(1, 4))]
            if rng.random() < 0.5:
                message["content"] = rng.choice([None, ""])
        return message

    def tool(self):
        return {"type": "function", "function": {
            "name": self.rng.choice(["f", "get_weather"]),
            "description": self.text(),
            "parameters": {"type": "object", "required": ["x"], "properties": {
                "x": {"type": "string", "description": self.text(),
                      "enum": ["a", "\u00e9"], "default": None}}}}}

    def draw(self):
        rng = self.rng
        messages = []
        if rng.random() < 0.5:
            messages.append({"role": "system", "content": self.text()})
        for _ in range(rng.randrange(1, 5)):
            messages.append({"role": "user", "content": self.text()})
            for _ in range(rng.randrange(0, 3)):
                messages.append(self.assistant())
                while "tool_calls" in messages[-1] and rng.random() < 0.8:
                    messages.append({"role": "tool", "content": self.text()})
                    if rng.random() < 0.5:
                        messages.append({"role": "tool", "content": self.text()})
                    messages.append(self.assistant())
        if rng.random() < 0.05:
            del rng.choice(messages)["content"]
        if rng.random() < 0.05:
            messages.insert(0, {"role": "developer", "content": self.text()})
        variables = {"messages": messages,
                     "add_generation_prompt": rng.random() < 0.5}
        if rng.random() < 0.5:
            variables["tools"] = rng.choice(
                [None, [], [self.tool()], [self.tool(), self.tool()]])
        if rng.random() < 0.2:
            variables["enable_thinking"] = rng.random() < 0.5
        return variables


def special_tokens(config):
    tokens = {}
    for key in ("bos_token", "eos_token", "pad_token", "unk_token"):
        token = config.get(key)
        if isinstance(token, dict):
            token = token["content"]
        if token is not None:
            tokens[key] = token
    return tokens


def chat_cases(count, configs):
    for path in configs:
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        chats = Chats(len(path))
        for _ in range(count):
            variables = {**special_tokens(config), **chats.draw()}
            yield case(config["chat_template"], variables)


def main():
    if sys.argv[1] == "fixture":
        cases = [case(t, VARIABLES) for t in split(TEMPLATES) + split(ERRORS)]
        for result in cases[:len(split(TEMPLATES))]:
            assert "text" in result, result
        write(sys.argv[2], cases)
    elif sys.argv[1] == "random":
        seed = int(sys.argv[4]) if len(sys.argv) > 4 else 1
        write(sys.argv[2], random_cases(int(sys.argv[3]), seed))
    else:
        write(sys.argv[2], chat_cases(int(sys.argv[3]), sys.argv[4:]))


if __name__ == "__main__":
    main()
