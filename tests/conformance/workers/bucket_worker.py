"""Starts an emulator of an object store, and fills buckets by the service's own client.

    bucket_worker.py s3 PORT        serves until it is killed
    bucket_worker.py put PORT BUCKET FOLDER
"""

import sys
from pathlib import Path


def serve(port):
    from moto.server import main
    main(["-H", "127.0.0.1", "-p", port])


def put(port, bucket, folder):
    import boto3
    client = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1",
                          aws_access_key_id="test", aws_secret_access_key="test")
    client.create_bucket(Bucket=bucket)
    for path in sorted(Path(folder).rglob("*")):
        if path.is_file():
            key = path.relative_to(folder).as_posix()
            client.put_object(Bucket=bucket, Key=key, Body=path.read_bytes(), ACL="public-read")


if __name__ == "__main__":
    {"s3": serve, "put": put}[sys.argv[1]](*sys.argv[2:])
