"""Starts an emulator of an object store, and fills buckets by the service's own client.

    bucket_worker.py s3 PORT        serves until it is killed
    bucket_worker.py fill PORT BUCKET FOLDER
    bucket_worker.py create|list|uploads|get|put|delete PORT BUCKET [NAME [TEXT]]   prints JSON
"""

import json
import sys
from pathlib import Path


def serve(port):
    from moto.server import main
    main(["-H", "127.0.0.1", "-p", port])


def client(port):
    import boto3
    return boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1",
                        aws_access_key_id="test", aws_secret_access_key="test")


def fill(port, bucket, folder):
    s3 = client(port)
    s3.create_bucket(Bucket=bucket)
    for path in sorted(Path(folder).rglob("*")):
        if path.is_file():
            key = path.relative_to(folder).as_posix()
            s3.put_object(Bucket=bucket, Key=key, Body=path.read_bytes(), ACL="public-read")


def ask(what, port, bucket, name=None, text=None):
    s3, answer = client(port), None
    if what == "create":
        s3.create_bucket(Bucket=bucket)
    elif what == "list":
        answer = [found["Key"] for found in s3.list_objects_v2(Bucket=bucket).get("Contents", [])]
    elif what == "uploads":
        answer = [found["Key"] for found in s3.list_multipart_uploads(Bucket=bucket).get("Uploads", [])]
    elif what == "get":
        answer = s3.get_object(Bucket=bucket, Key=name)["Body"].read().hex()
    elif what == "put":
        s3.put_object(Bucket=bucket, Key=name, Body=text.encode())
    elif what == "delete":
        s3.delete_object(Bucket=bucket, Key=name)
    print(json.dumps(answer))


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command in ("s3", "fill"):
        {"s3": serve, "fill": fill}[command](*arguments)
    else:
        ask(command, *arguments)
