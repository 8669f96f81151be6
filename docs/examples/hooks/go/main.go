// A hook for `bulla proxy`: refuses to send private keys. It speaks ext_authz.
//
//	go run . 127.0.0.1:9001
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"regexp"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	auth "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

var privateKey = regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY-----`)

type hook struct {
	auth.UnimplementedAuthorizationServer
}

// Check decides about one request. The body needs `request_body = true` of the hook.
func (hook) Check(_ context.Context, request *auth.CheckRequest) (*auth.CheckResponse, error) {
	attributes := request.GetAttributes()
	http := attributes.GetRequest().GetHttp()
	if privateKey.MatchString(http.GetBody()) || privateKey.Match(http.GetRawBody()) {
		return &auth.CheckResponse{
			Status: &status.Status{Code: int32(codes.PermissionDenied)},
			HttpResponse: &auth.CheckResponse_DeniedResponse{DeniedResponse: &auth.DeniedHttpResponse{
				Status: &typev3.HttpStatus{Code: typev3.StatusCode_Forbidden},
				Body:   "This request contains a private key. It was not sent.\n",
			}},
		}, nil
	}
	header := &core.HeaderValue{Key: "x-checked-for", Value: attributes.GetSource().GetPrincipal()}
	return &auth.CheckResponse{
		// A response without a status is not valid.
		Status: &status.Status{Code: int32(codes.OK)},
		HttpResponse: &auth.CheckResponse_OkResponse{OkResponse: &auth.OkHttpResponse{
			Headers: []*core.HeaderValueOption{{
				Header:       header,
				AppendAction: core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
			}},
		}},
	}, nil
}

func main() {
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	auth.RegisterAuthorizationServer(server, hook{})
	fmt.Printf("the hook listens on %s\n", listener.Addr())
	log.Fatal(server.Serve(listener))
}
