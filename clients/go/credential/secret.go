package credential

import (
	"crypto/subtle"
	"fmt"
	"log/slog"
)

const redacted = "[redacted]"

// Secret is a text that no formatting, logging or encoding shows. Only Reveal returns the text. Secrets cannot be compared with
// ==; use Equal.
type Secret struct {
	// A function, because package fmt and debug printers that use reflection show the text behind a string or a pointer.
	reveal func() string
}

// NewSecret returns a Secret with this text.
func NewSecret(text string) Secret {
	return Secret{reveal: func() string { return text }}
}

// Reveal returns the text. The zero Secret has the empty text.
func (s Secret) Reveal() string {
	if s.reveal == nil {
		return ""
	}
	return s.reveal()
}

// Equal compares two secrets in a time that does not depend on where they differ.
func (s Secret) Equal(other Secret) bool {
	return subtle.ConstantTimeCompare([]byte(s.Reveal()), []byte(other.Reveal())) == 1
}

// String returns a placeholder.
func (s Secret) String() string { return redacted }

// GoString returns a placeholder.
func (s Secret) GoString() string { return redacted }

// Format writes a placeholder for every verb.
func (s Secret) Format(state fmt.State, _ rune) { _, _ = state.Write([]byte(redacted)) }

// MarshalText returns a placeholder.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// MarshalJSON returns a placeholder.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// LogValue returns a placeholder.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }
