// Package storeaddr says where a service keeps what it keeps: a SQLite file, or a
// MongoDB database whose address has no secret in it.
package storeaddr

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Usage is what the help of a service says of an address, after what is kept there.
const Usage = "a SQLite `file`, or mongodb://USER@HOST/DATABASE without a password"

// PasswordUsage is what it says of the file with the password.
const PasswordUsage = "`file` with the password of the user in mongodb:// addresses, mode 0600 (default none)"

// Address of a store.
type Address struct {
	// Location is the path of a SQLite file, or mongodb://… or mongodb+srv://…
	Location string
	// PasswordFile holds the password of the user in Location; empty for none.
	PasswordFile string
}

// MongoDB reports whether it is a MongoDB database.
func (a Address) MongoDB() bool {
	return strings.HasPrefix(a.Location, "mongodb://") || strings.HasPrefix(a.Location, "mongodb+srv://")
}

// Validate says what is wrong with it, and repeats nothing of what it holds.
func (a Address) Validate() error {
	switch {
	case a.Location == "":
		return errors.New("required")
	case !a.MongoDB() && strings.Contains(a.Location, "://"):
		return errors.New("neither the path of a SQLite file nor mongodb://HOST or mongodb+srv://HOST")
	case !a.MongoDB():
		return nil
	}
	u, err := url.Parse(a.Location)
	switch {
	case err != nil || u.Host == "":
		return errors.New("not a URI of MongoDB: mongodb://HOST/DATABASE")
	case hasSecret(u):
		return errors.New("leave the password out of the URI and give a file that holds it")
	case a.PasswordFile != "" && u.User.Username() == "":
		return errors.New("a password file needs a user in the URI: mongodb://USER@HOST")
	case strings.Contains(strings.Trim(u.Path, "/"), "/"):
		return errors.New("one database: mongodb://HOST/DATABASE")
	}
	return nil
}

func hasSecret(u *url.URL) bool {
	if _, has := u.User.Password(); has {
		return true
	}
	for name := range u.Query() {
		if name = strings.ToLower(name); strings.Contains(name, "password") || name == "authmechanismproperties" {
			return true
		}
	}
	return false
}

// Named is the location that a flag has.
type Named struct{ Flag, Location string }

// ValidateFlags says everything that is wrong with the stores of one service,
// which have one password file.
func ValidateFlags(passwordFile string, stores ...Named) error {
	var errs []error
	mongodb := false
	for _, s := range stores {
		a := Address{Location: s.Location, PasswordFile: passwordFile}
		mongodb = mongodb || a.MongoDB()
		if err := a.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("--%s: %w", s.Flag, err))
		}
	}
	if passwordFile != "" && !mongodb {
		errs = append(errs, errors.New("--store-password-file: only beside a mongodb:// address"))
	}
	return errors.Join(errs...)
}
