"""A hook for `bulla proxy`: refuses to send private keys, and masks card numbers in responses.

    pip install grpcio xds-protos
    python hook.py 127.0.0.1:9001

The service speaks both protocols: ext_authz and ext_proc.
"""

import re
import sys
from concurrent import futures

import grpc
from envoy.config.core.v3 import base_pb2 as core
from envoy.service.auth.v3 import external_auth_pb2 as auth
from envoy.service.auth.v3 import external_auth_pb2_grpc as auth_grpc
from envoy.service.ext_proc.v3 import external_processor_pb2 as proc
from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as proc_grpc
from envoy.type.v3 import http_status_pb2 as http
from google.rpc import code_pb2, status_pb2

PRIVATE_KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")
CARD = re.compile(rb"\b(?:\d[ -]?){15}\d\b")
REFUSAL = "This request contains a private key. It was not sent.\n"


def field(name, value):
    """Returns a header field that replaces the fields of this name."""
    return core.HeaderValueOption(
        header=core.HeaderValue(key=name, raw_value=value.encode()),
        append_action=core.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD,
    )


class Authorization(auth_grpc.AuthorizationServicer):
    """ext_authz: one call for each request. The body needs `request_body = true` of the hook."""

    def Check(self, request, context):
        source, http_request = request.attributes.source, request.attributes.request.http
        if PRIVATE_KEY.search(http_request.body.encode() or http_request.raw_body):
            denied = auth.DeniedHttpResponse(status=http.HttpStatus(code=403), body=REFUSAL)
            status = status_pb2.Status(code=code_pb2.PERMISSION_DENIED)
            return auth.CheckResponse(status=status, denied_response=denied)
        ok = auth.OkHttpResponse(headers=[field("x-checked-for", source.principal)])
        # A response without a status is not valid.
        return auth.CheckResponse(status=status_pb2.Status(code=code_pb2.OK), ok_response=ok)


class ExternalProcessor(proc_grpc.ExternalProcessorServicer):
    """ext_proc: one stream for each request. Each message has one answer."""

    def Process(self, request_iterator, context):
        facts = dict(context.invocation_metadata())
        for message in request_iterator:
            yield self.answer(message, facts)

    def answer(self, message, facts):
        kind = message.WhichOneof("request")
        if kind == "request_headers":
            set_headers = [field("x-checked-for", facts.get("x-bulla-principal", ""))]
            changes = proc.HeaderMutation(set_headers=set_headers)
            common = proc.CommonResponse(header_mutation=changes)
            return proc.ProcessingResponse(request_headers=proc.HeadersResponse(response=common))
        if kind == "request_body":
            if PRIVATE_KEY.search(message.request_body.body):
                refusal = proc.ImmediateResponse(status=http.HttpStatus(code=403), body=REFUSAL.encode())
                return proc.ProcessingResponse(immediate_response=refusal)
            return proc.ProcessingResponse(request_body=proc.BodyResponse())
        if kind == "response_headers":
            return proc.ProcessingResponse(response_headers=proc.HeadersResponse())
        body = CARD.sub(b"[card]", message.response_body.body)
        common = proc.CommonResponse(body_mutation=proc.BodyMutation(body=body))
        return proc.ProcessingResponse(response_body=proc.BodyResponse(response=common))


def main():
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=16))
    auth_grpc.add_AuthorizationServicer_to_server(Authorization(), server)
    proc_grpc.add_ExternalProcessorServicer_to_server(ExternalProcessor(), server)
    host, _, _ = sys.argv[1].rpartition(":")
    port = server.add_insecure_port(sys.argv[1])
    server.start()
    print(f"the hook listens on {host}:{port}", flush=True)
    server.wait_for_termination()


if __name__ == "__main__":
    main()
