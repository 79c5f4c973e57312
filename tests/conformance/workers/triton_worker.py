"""Triton's Python client: reads configurations with the types that the server itself has."""

from pathlib import Path

from google.protobuf import json_format, text_format
from line_server import serve
from tritonclient.grpc import model_config_pb2


def read_config(path):
    """config.pbtxt with every field under its name in model_config.proto; a field that does not exist there is an error."""
    config = text_format.Parse(Path(path).read_text(), model_config_pb2.ModelConfig())
    return json_format.MessageToDict(config, preserving_proto_field_name=True)


serve({"config": read_config})
