"""A real S3 server on loopback for io/s3_server_test.cc.

Needs moto[server] and boto3. Starts moto with signature checking, puts objects
into a bucket, and a proxy in front that makes faults on demand. Prints one line
of JSON when it is ready and ends with its standard input.

  GET /__fault/MODE/COUNT   on the proxy: the next COUNT object reads fail
  MODE: throttle (503 SlowDown), truncate (half a body, then hang up),
        flip (one wrong bit in the middle of the body)
"""

import hashlib
import http.client
import http.server
import json
import os
import sys
import threading

os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = "1000000000"
os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")

import boto3  # noqa: E402
from moto.server import ThreadedMotoServer  # noqa: E402

faults = {"mode": "", "count": 0}
lock = threading.Lock()


class Proxy(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    backend = 0

    def log_message(self, *args):
        pass

    def take_fault(self):
        with lock:
            if faults["count"] == 0 or self.path.count("/") < 2 or self.command != "GET":
                return ""
            faults["count"] -= 1
            return faults["mode"]

    def answer(self, code, headers, body, length=None):
        self.send_response(code)
        for name, value in headers:
            if name.lower() not in ("content-length", "connection", "transfer-encoding", "date", "server"):
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.close_connection = True

    def do_GET(self):
        if self.path.startswith("/__fault/"):
            _, _, mode, count = self.path.split("/")
            with lock:
                faults.update(mode=mode, count=int(count))
            return self.answer(200, [], b"ok")
        fault = self.take_fault()
        if fault == "throttle":
            return self.answer(503, [], b"<Error><Code>SlowDown</Code><Message>slow</Message></Error>")
        backend = http.client.HTTPConnection("127.0.0.1", self.backend)
        # The signature covers the host name that the client used.
        backend.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            backend.putheader(name, value)
        backend.endheaders()
        reply = backend.getresponse()
        body = reply.read()
        length = None
        if self.command == "HEAD":
            length = int(reply.getheader("Content-Length") or 0)
        if fault == "truncate":
            length, body = len(body), body[: len(body) // 2]
        if fault == "flip":
            middle = len(body) // 2
            body = body[:middle] + bytes([body[middle] ^ 4]) + body[middle + 1 :]
        self.answer(reply.status, reply.getheaders(), body, length)

    do_HEAD = do_GET


def main():
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    endpoint = f"http://127.0.0.1:{port}"
    admin = dict(endpoint_url=endpoint, region_name="us-east-1")
    iam = boto3.client("iam", aws_access_key_id="x", aws_secret_access_key="y", **admin)
    iam.create_user(UserName="reader")
    iam.put_user_policy(
        UserName="reader",
        PolicyName="read",
        PolicyDocument=json.dumps(
            {
                "Version": "2012-10-17",
                "Statement": [{"Effect": "Allow", "Action": ["s3:*"], "Resource": "*"}],
            }
        ),
    )
    key = iam.create_access_key(UserName="reader")["AccessKey"]
    s3 = boto3.client("s3", aws_access_key_id="x", aws_secret_access_key="y", **admin)
    s3.create_bucket(Bucket="bucket")
    sizes = {"data/train file.jsonl": 3_000_001, "data/empty": 0, "data/sub/b+c=d.bin": 70_000}
    digests = {}
    for name, size in sizes.items():
        body = bytes((i * 131 + len(name)) % 251 for i in range(size))
        digests[name] = hashlib.md5(body).hexdigest()
        s3.put_object(Bucket="bucket", Key=name, Body=body, ChecksumAlgorithm="SHA256")
    s3.put_object(Bucket="bucket", Key="odd/ a+b%c&d\u00e9\u0001=.txt", Body=b"odd")
    # Checksums of the kinds that others upload with; none but an ETag of parts.
    body = bytes(i * i % 251 for i in range(200_000))
    for kind in ("CRC32", "SHA1"):
        s3.put_object(Bucket="bucket", Key=f"sums/{kind}", Body=body, ChecksumAlgorithm=kind)
    upload = dict(Bucket="bucket", Key="sums/parts")
    upload["UploadId"] = s3.create_multipart_upload(**upload)["UploadId"]
    parts = []
    for number, size in enumerate((5 << 20, 5 << 20, 100_000), 1):
        part = s3.upload_part(PartNumber=number, Body=bytes([number]) * size, **upload)
        parts.append({"PartNumber": number, "ETag": part["ETag"]})
    s3.complete_multipart_upload(MultipartUpload={"Parts": parts}, **upload)
    for i in range(1100):  # more than a page
        s3.put_object(Bucket="bucket", Key=f"many/{i:05d}", Body=b"x")
    # From here on every request must be signed.
    import requests

    requests.post(f"{endpoint}/moto-api/reset-auth", data=b"0")
    Proxy.backend = port
    proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    print(
        json.dumps(
            {
                "endpoint": f"http://127.0.0.1:{proxy.server_address[1]}",
                "access_key": key["AccessKeyId"],
                "secret_key": key["SecretAccessKey"],
                "md5": digests,
            }
        ),
        flush=True,
    )
    sys.stdin.read()
    os._exit(0)


main()
