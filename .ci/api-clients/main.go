// Drives a server through the client that oapi-codegen made of its description: URL, token, root certificate, request (PKCS #10).
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"strings"

	"interop/bulla"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func want(condition bool, format string, values ...any) {
	if !condition {
		panic(fmt.Sprintf(format, values...))
	}
}

func main() {
	url, token, root, csr := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	pool := x509.NewCertPool()
	want(pool.AppendCertsFromPEM(must(os.ReadFile(root))), "no certificate in %s", root)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	authenticate := func(_ context.Context, request *http.Request) error {
		request.Header.Set("Authorization", "Bearer "+token)
		return nil
	}
	client := must(bulla.NewClientWithResponses(url, bulla.WithHTTPClient(&http.Client{Transport: transport}),
		bulla.WithRequestEditorFn(authenticate)))
	ctx := context.Background()

	owner := must(client.CreateOwnerWithResponse(ctx, bulla.NewPerson{Name: "go"}))
	want(owner.JSON201 != nil && owner.JSON201.Name == "go", "%s", owner.Body)
	limit := int32(1)
	owners := must(client.ListOwnersWithResponse(ctx, &bulla.ListOwnersParams{Limit: &limit}))
	want(owners.JSON200 != nil && len(owners.JSON200.Items) == 1, "%s", owners.Body)
	missing := must(client.GetOwnerWithResponse(ctx, "nobody"))
	want(missing.ApplicationproblemJSON4XX != nil && missing.ApplicationproblemJSON4XX.Status == 404, "%s", missing.Body)

	issued := must(client.IssueByProfileWithResponse(ctx, "default", bulla.NewIssued{Csr: string(must(os.ReadFile(csr)))}))
	want(issued.JSON201 != nil && strings.HasPrefix(issued.JSON201.Chain, "-----BEGIN"), "%s", issued.Body)
	id := issued.JSON201.Id
	revoked := must(client.RevokeIssuedWithResponse(ctx, bulla.NewRevocation{Certificate: pointer(id.String()), Reason: "superseded"}))
	want(revoked.JSON200 != nil && revoked.JSON200.Count == 1, "%s", revoked.Body)
	gone := must(client.DeleteOwnerWithResponse(ctx, "go"))
	want(gone.StatusCode() == 204, "%s", gone.Body)
	fmt.Println("Go: a client of oapi-codegen works")
}

func pointer[T any](value T) *T { return &value }
