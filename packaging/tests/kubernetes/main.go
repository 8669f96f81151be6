// Validates Kubernetes manifests on standard input: against the types of the API, where an unknown field is an error, and against
// the OpenAPI schemas of Kubernetes, which have the required fields, where client-go ships the schema of the group.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	openapi_v3 "github.com/google/gnostic-models/openapiv3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/openapi/openapitest"
	"k8s.io/kube-openapi/pkg/util/proto"
	"k8s.io/kube-openapi/pkg/util/proto/validation"
	sigs "sigs.k8s.io/yaml"
)

func main() {
	if err := run(os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(input io.Reader) error {
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	documents := yaml.NewYAMLReader(bufio.NewReader(input))
	objects, checked := 0, 0
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if isEmpty(document) {
			continue
		}
		_, kind, err := decoder.Decode(document, nil, nil)
		if err != nil {
			return fmt.Errorf("%w, in:\n%s", err, document)
		}
		known, err := checkSchema(document, *kind)
		if err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		objects++
		if known {
			checked++
		}
	}
	if checked == 0 {
		return errors.New("no manifest was compared with a schema")
	}
	fmt.Printf("%d objects, %d of them by their OpenAPI schema\n", objects, checked)
	return nil
}

func isEmpty(document []byte) bool {
	for _, line := range strings.Split(string(document), "\n") {
		if line = strings.TrimSpace(line); line != "" && line != "---" && !strings.HasPrefix(line, "#") {
			return false
		}
	}
	return true
}

// checkSchema returns whether there is a schema for the kind, and what in the document breaks it.
func checkSchema(document []byte, kind schema.GroupVersionKind) (bool, error) {
	path := "apis/" + kind.Group + "/" + kind.Version
	if kind.Group == "" {
		path = "api/" + kind.Version
	}
	paths, err := openapitest.NewEmbeddedFileClient().Paths()
	if err != nil {
		return false, err
	}
	group, found := paths[path]
	if !found {
		return false, nil
	}
	text, err := group.Schema("application/json")
	if err != nil {
		return false, err
	}
	parsed, err := openapi_v3.ParseDocument(text)
	if err != nil {
		return false, err
	}
	models, err := proto.NewOpenAPIV3Data(parsed)
	if err != nil {
		return false, err
	}
	var object any
	if err := sigs.Unmarshal(document, &object); err != nil {
		return false, err
	}
	for _, name := range models.ListModels() {
		if strings.HasSuffix(name, "."+kind.Version+"."+kind.Kind) {
			return true, errors.Join(validation.ValidateModel(object, models.LookupModel(name), kind.Kind)...)
		}
	}
	return false, fmt.Errorf("the schema of %s has no %s", path, kind.Kind)
}
