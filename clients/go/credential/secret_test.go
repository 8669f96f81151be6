package credential

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"math/big"
	"strings"
	"testing"
)

func parsed(t *testing.T, kind, value string) *Credential {
	t.Helper()
	var made document
	text := fmt.Sprintf(`{"name":"/A/x","type":%q,"id":"1","version_created_at":"2026-11-21T05:00:00Z","expires_at":"2030-01-02T03:04:05Z",
		"metadata":{"note":"canary"},"value":%s}`, kind, value)
	if err := json.Unmarshal([]byte(text), &made); err != nil {
		t.Fatal(err)
	}
	return made.credential()
}

func TestNoFormatShowsASecret(t *testing.T) {
	secret := NewSecret("canary")
	credential := parsed(t, "user", `{"username":"u","password":"canary","password_hash":"canary"}`)
	user, err := credential.User()
	if err != nil {
		t.Fatal(err)
	}
	type wrapper struct {
		Public  Secret
		private Secret
		pointer *Secret
	}
	var log bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(&log, nil))
	values := []any{secret, &secret, user, &user, credential, *credential, wrapper{secret, secret, &secret}, []Secret{secret},
		map[string]Secret{"a": secret}, Options{Token: secret}}
	for _, value := range values {
		shown := ""
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			shown += fmt.Sprintf(verb, value)
		}
		if encoded, err := json.Marshal(value); err == nil {
			shown += string(encoded)
		}
		logger.Info("shown", "value", value)
		shown += log.String()
		if strings.Contains(shown, "canary") || strings.Contains(shown, fmt.Sprintf("%x", "canary")) {
			t.Errorf("%T shows the secret: %s", value, shown)
		}
	}
	if secret.Reveal() != "canary" || user.Password.Reveal() != "canary" || user.Username != "u" {
		t.Error("Reveal does not return the text")
	}
	if (Secret{}).Reveal() != "" || !secret.Equal(NewSecret("canary")) || secret.Equal(Secret{}) {
		t.Error("secrets are not compared by their text")
	}
}

func TestValuesOfEachTypeAreTyped(t *testing.T) {
	for _, kind := range []string{"value", "password"} {
		if text, err := parsed(t, kind, `"a\u00e9\""`).Text(); err != nil || text.Reveal() != `aé"` {
			t.Error(kind, err, text.Reveal())
		}
	}
	pair, err := parsed(t, "ssh", `{"public_key":"ssh-rsa A","private_key":"k","public_key_fingerprint":"f"}`).SSH()
	if err != nil || pair.PublicKey != "ssh-rsa A" || pair.PrivateKey.Reveal() != "k" || pair.Fingerprint != "f" {
		t.Error(err, pair)
	}
	pair, err = parsed(t, "rsa", `{"public_key":null,"private_key":"k"}`).RSA()
	if err != nil || pair.PublicKey != "" || pair.PrivateKey.Reveal() != "k" {
		t.Error(err, pair)
	}
	object := parsed(t, "json", `{"a":{"b":12345678901234567890,"none":null},"list":[1]}`)
	var into map[string]any
	if err := object.JSON(&into); err != nil || into["a"].(map[string]any)["b"].(json.Number) != "12345678901234567890" {
		t.Error(err, into)
	}
	for path, wanted := range map[string]string{"a b": "12345678901234567890", "list": "[1]"} {
		if field, err := object.Field(strings.Fields(path)...); err != nil || field.Reveal() != wanted {
			t.Error(path, err, field.Reveal())
		}
	}
	for _, path := range []string{"a none", "a x", "list x"} {
		if _, err := object.Field(strings.Fields(path)...); !errors.Is(err, ErrWrongType) {
			t.Error(path, err)
		}
	}
	var metadata struct{ Note string }
	if err := object.Metadata(&metadata); err != nil || metadata.Note != "canary" || object.ExpiresAt.Year() != 2030 {
		t.Error(err, metadata)
	}
	if _, err := object.User(); !errors.Is(err, ErrWrongType) || !strings.Contains(err.Error(), "the type is json, not user") {
		t.Error(err)
	}
	if err := parsed(t, "json", `"canary"`).JSON(new(int)); !errors.Is(err, ErrWrongType) || strings.Contains(err.Error(), "canary") {
		t.Error(err)
	}
}

func TestCertificateIsATLSCertificate(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	made, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := func(kind string, content []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}))
	}
	value, _ := json.Marshal(map[string]any{
		"ca": nil, "certificate": text("CERTIFICATE", made), "private_key": text("PRIVATE KEY", encoded),
	})
	certificate, err := parsed(t, "certificate", string(value)).Certificate()
	if err != nil {
		t.Fatal(err)
	}
	if pair, err := certificate.TLS(); err != nil || !key.Equal(pair.PrivateKey) || certificate.CA != "" {
		t.Error(err)
	}
}
