package credential

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// entryBytes is the memory of a cached name in addition to its value.
const entryBytes = 512

// Credential is the current version of a credential. It is shared with the cache and never changes. Printing it shows no value.
type Credential struct {
	// Name as it was first written.
	Name string
	// Type is value, json, password, user, certificate, rsa or ssh.
	Type string
	// ID of the version.
	ID string
	// CreatedAt is the time of the version.
	CreatedAt time.Time
	// ExpiresAt is the time from which the version cannot be read; zero for a version without expiry.
	ExpiresAt time.Time

	value    Secret
	metadata Secret
}

// User is the value of a credential of type user.
type User struct {
	Username string
	Password Secret
	// PasswordHash is the SHA-512-crypt of the password.
	PasswordHash Secret
}

// Certificate is the value of a credential of type certificate, in PEM. Parts may be empty.
type Certificate struct {
	// CA is the certificate that signed; during a rotation of the CA both versions, the signing one first.
	CA          string
	Certificate string
	PrivateKey  Secret
}

// KeyPair is the value of a credential of type rsa or ssh.
type KeyPair struct {
	PublicKey  string
	PrivateKey Secret
	// Fingerprint of an SSH key.
	Fingerprint string
}

// document is a credential in the store's form.
type document struct {
	Name      string          `json:"name"`
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	CreatedAt time.Time       `json:"version_created_at"`
	ExpiresAt *time.Time      `json:"expires_at"`
	Metadata  json.RawMessage `json:"metadata"`
	Value     json.RawMessage `json:"value"`
	// Error is set if the store cannot decrypt the value.
	Error string `json:"error"`
}

func (d *document) credential() *Credential {
	made := &Credential{
		Name: d.Name, Type: d.Type, ID: d.ID, CreatedAt: d.CreatedAt,
		value: NewSecret(string(d.Value)), metadata: NewSecret(string(d.Metadata)),
	}
	if d.ExpiresAt != nil {
		made.ExpiresAt = *d.ExpiresAt
	}
	return made
}

func (c *Credential) bytes() int64 {
	return int64(entryBytes + len(c.Name) + len(c.value.Reveal()) + len(c.metadata.Reveal()))
}

// String returns name, type and version, without the value.
func (c *Credential) String() string {
	return fmt.Sprintf("%s (%s, version %s)", c.Name, c.Type, c.ID)
}

// Format writes String for every verb.
func (c *Credential) Format(state fmt.State, _ rune) { _, _ = state.Write([]byte(c.String())) }

// Text returns a value of type value or password.
func (c *Credential) Text() (Secret, error) {
	if err := c.is("value", "password"); err != nil {
		return Secret{}, err
	}
	return c.Field()
}

// User returns a value of type user.
func (c *Credential) User() (User, error) {
	var parts struct {
		Username string `json:"username"`
		Password string `json:"password"`
		Hash     string `json:"password_hash"`
	}
	err := c.parse(&parts, "user")
	return User{parts.Username, NewSecret(parts.Password), NewSecret(parts.Hash)}, err
}

// Certificate returns a value of type certificate.
func (c *Credential) Certificate() (Certificate, error) {
	var parts struct {
		CA          string `json:"ca"`
		Certificate string `json:"certificate"`
		PrivateKey  string `json:"private_key"`
	}
	err := c.parse(&parts, "certificate")
	return Certificate{parts.CA, parts.Certificate, NewSecret(parts.PrivateKey)}, err
}

// TLS returns the certificate with its key, for tls.Config.
func (c Certificate) TLS() (tls.Certificate, error) {
	return tls.X509KeyPair([]byte(c.Certificate), []byte(c.PrivateKey.Reveal()))
}

// RSA returns a value of type rsa.
func (c *Credential) RSA() (KeyPair, error) { return c.pair("rsa") }

// SSH returns a value of type ssh.
func (c *Credential) SSH() (KeyPair, error) { return c.pair("ssh") }

func (c *Credential) pair(kind string) (KeyPair, error) {
	var parts struct {
		PublicKey   string `json:"public_key"`
		PrivateKey  string `json:"private_key"`
		Fingerprint string `json:"public_key_fingerprint"`
	}
	err := c.parse(&parts, kind)
	return KeyPair{parts.PublicKey, NewSecret(parts.PrivateKey), parts.Fingerprint}, err
}

// JSON decodes the value of any type as encoding/json does, with numbers of any precision as json.Number. The caller must not log
// the result.
func (c *Credential) JSON(into any) error { return c.decode(c.value, into) }

// Metadata decodes the metadata. It leaves into unchanged if there is none.
func (c *Credential) Metadata(into any) error {
	if text := c.metadata.Reveal(); text == "" || text == "null" {
		return nil
	}
	return c.decode(c.metadata, into)
}

// Field returns the value, or its part at path (as in Field("private_key")), as text: a string unchanged, anything else as JSON.
func (c *Credential) Field(path ...string) (Secret, error) {
	part := json.RawMessage(c.value.Reveal())
	for _, field := range path {
		var fields map[string]json.RawMessage
		if json.Unmarshal(part, &fields) != nil || fields[field] == nil {
			return Secret{}, c.missing(path)
		}
		part = fields[field]
	}
	if bytes.Equal(part, []byte("null")) {
		return Secret{}, c.missing(path)
	}
	var text string
	if json.Unmarshal(part, &text) == nil {
		return NewSecret(text), nil
	}
	return NewSecret(string(part)), nil
}

func (c *Credential) missing(path []string) error {
	message := fmt.Sprintf("the value of type %s has no field %s", c.Type, strings.Join(path, "."))
	return &Error{Kind: ErrWrongType, Name: c.Name, Message: message}
}

func (c *Credential) is(kinds ...string) error {
	for _, kind := range kinds {
		if c.Type == kind {
			return nil
		}
	}
	message := fmt.Sprintf("the type is %s, not %s", c.Type, strings.Join(kinds, " or "))
	return &Error{Kind: ErrWrongType, Name: c.Name, Message: message}
}

func (c *Credential) parse(into any, kind string) error {
	if err := c.is(kind); err != nil {
		return err
	}
	return c.decode(c.value, into)
}

// decode reports errors without text of the value.
func (c *Credential) decode(from Secret, into any) error {
	decoder := json.NewDecoder(strings.NewReader(from.Reveal()))
	decoder.UseNumber()
	if decoder.Decode(into) != nil {
		message := fmt.Sprintf("the value does not fit into %T", into)
		return &Error{Kind: ErrWrongType, Name: c.Name, Message: message}
	}
	return nil
}
