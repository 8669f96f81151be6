package credential

import (
	"errors"
	"fmt"
)

// The kinds of errors, for errors.Is.
var (
	// ErrNotFound: the credential does not exist, or this client may not read it. The store does not distinguish the two cases.
	ErrNotFound = errors.New("not found")
	// ErrForbidden: the store does not accept the client's token or certificate. Retrying does not help.
	ErrForbidden = errors.New("forbidden")
	// ErrUnavailable: the store, its database or the network failed, and the cache has no usable value. Retrying is safe.
	ErrUnavailable = errors.New("unavailable")
	// ErrRefused: the store rejected the request, or cannot decrypt the value.
	ErrRefused = errors.New("refused")
	// ErrInvalid: the name or an option is invalid.
	ErrInvalid = errors.New("invalid")
	// ErrWrongType: the credential has another type.
	ErrWrongType = errors.New("wrong type")
)

// Error is an error of this package. errors.Is tells its kind.
type Error struct {
	// Kind is one of the errors of this package, such as ErrNotFound.
	Kind error
	// Name is the credential, if the error concerns only one.
	Name string
	// Status is the HTTP status of the store's response, if there was one.
	Status int
	// Message is the reason.
	Message string
}

// Error returns the kind, the name and the reason.
func (e *Error) Error() string {
	name := e.Name
	if name != "" {
		name = " " + name
	}
	switch {
	case e.Kind == ErrNotFound:
		return fmt.Sprintf("credential%s: does not exist, or this client may not read it", name)
	case e.Status != 0:
		return fmt.Sprintf("credential%s: %v: %s (status %d)", name, e.Kind, e.Message, e.Status)
	default:
		return fmt.Sprintf("credential%s: %v: %s", name, e.Kind, e.Message)
	}
}

// Unwrap returns the kind.
func (e *Error) Unwrap() error { return e.Kind }

func invalid(format string, values ...any) *Error {
	return &Error{Kind: ErrInvalid, Message: fmt.Sprintf(format, values...)}
}

func unavailable(format string, values ...any) *Error {
	return &Error{Kind: ErrUnavailable, Message: fmt.Sprintf(format, values...)}
}

// named returns the error for one credential. A shared error is not changed.
func (e *Error) named(name string) *Error {
	copied := *e
	copied.Name = name
	return &copied
}
