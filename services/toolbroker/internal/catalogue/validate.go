package catalogue

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"cofferdam.dev/services/toolbroker/internal/egress"
	"cofferdam.dev/services/toolbroker/internal/project"
)

// minResult is the smallest bound of a result, in bytes: less could not even say
// that something was left out.
const minResult = 1 << 10

// maxFolders is how many files and folders a server over stdio can be given.
const maxFolders = 32

// maxUID is the largest uid that can be given; the next one means none.
const maxUID = 1<<32 - 2

var variablePattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

// say collects what is wrong.
type say func(format string, args ...any)

// Validate reports everything that is wrong with c.
func (c Config) Validate() error {
	var errs []error
	if len(c.Servers) > maxServers {
		errs = append(errs, fmt.Errorf("catalogue: more than %d servers", maxServers))
	}
	namespaces, users := map[string]bool{}, map[uint32]bool{}
	for i, s := range c.Servers {
		say := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("catalogue: servers[%d] (%.40q): %w", i, s.Namespace, fmt.Errorf(format, args...)))
		}
		s.validate(say)
		if namespaces[s.Namespace] {
			say("namespace: it is there twice")
		}
		if s.Namespace == namespaceBuiltin {
			say("namespace: %q is taken by what needs no server", namespaceBuiltin)
		}
		namespaces[s.Namespace] = true
		if s.RunAs != 0 && (users[s.RunAs] || s.RunAs > maxUID) {
			say("run_as: 1 to %d, and of one server alone", uint32(maxUID))
		}
		users[s.RunAs] = true
	}
	if c.Builtin != nil {
		c.Builtin.validate(func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("catalogue: builtin: %w", fmt.Errorf(format, args...)))
		})
	}
	return errors.Join(errs...)
}

func (s Server) validate(say say) {
	if !namespacePattern.MatchString(s.Namespace) {
		say("namespace: 1 to 32 characters of [a-z0-9_-], a letter first")
	}
	switch s.Transport {
	case TransportStdio:
		s.validateStdio(say)
	case TransportHTTP:
		s.validateHTTP(say)
	default:
		say("transport: %q or %q", TransportStdio, TransportHTTP)
	}
	if len(s.Tools) == 0 || len(s.Tools) > maxServerTools {
		say("tools: name 1 to %d", maxServerTools)
	}
	seen := map[string]bool{}
	for _, name := range s.Tools {
		if !toolPattern.MatchString(name) || seen[name] {
			say("tools: %.40q: once, 1 to 128 characters of [A-Za-z0-9._/-]", name)
		}
		seen[name] = true
	}
	validatePolicy(say, s.Approval, s.Risk, s.Timeout, s.MaxResultBytes)
	validateIdle(say, s.IdleTimeout)
	for _, name := range slices.Sorted(maps.Keys(s.ToolOptions)) {
		if !seen[name] {
			say("tool_options: %.40q is not among the tools", name)
		}
		o := s.ToolOptions[name]
		validatePolicy(say, o.Approval, o.Risk, o.Timeout, o.MaxResultBytes)
		validateIdle(say, o.IdleTimeout)
	}
	s.Limits.validate(say)
	if s.Credential != nil {
		s.Credential.validate(s, say)
	}
	s.validateListing(say)
}

func (s Server) validateListing(say say) {
	if s.ListingCredential == nil {
		return
	}
	if s.Credential == nil || s.Credential.Source != SourceTokenExchange || s.ListingCredential.Source == SourceTokenExchange {
		say("listing_credential: only beside a credential of the source %q, and of another one", SourceTokenExchange)
	}
	s.ListingCredential.validate(s, func(format string, args ...any) { say("listing_"+format, args...) })
}

func (s Server) validateStdio(say say) {
	if len(s.Command) == 0 || !filepath.IsAbs(s.Command[0]) {
		say("command: begins with the absolute path of a program")
	}
	if slices.ContainsFunc(s.Command, hasNUL) {
		say("command: contains NUL")
	}
	for _, p := range slices.Concat(s.ReadFolders, s.WriteFolders) {
		if !filepath.IsAbs(p) || filepath.Clean(p) != p || p == "/" || hasNUL(p) {
			say("read_folders, write_folders: %.60q is no absolute path below /, written the shortest way", p)
		}
	}
	if len(s.ReadFolders)+len(s.WriteFolders) > maxFolders {
		say("read_folders, write_folders: at most %d", maxFolders)
	}
	if s.URL != "" || s.Egress != nil {
		say("url, egress: only for %q", TransportHTTP)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Environment)) {
		if !variablePattern.MatchString(name) || hasNUL(s.Environment[name]) {
			say("environment: %.40q is not a variable that can be set", name)
		}
	}
}

func (s Server) validateHTTP(say say) {
	if len(s.Command) > 0 || len(s.Environment) > 0 || s.RunAs != 0 || len(s.ReadFolders) > 0 || len(s.WriteFolders) > 0 || s.Network {
		say("command, environment, run_as, read_folders, write_folders, network: only for %q", TransportStdio)
	}
	s.Egress.validate(say)
	if u, err := egress.ParseURL(s.URL); err != nil {
		say("url: %w", err)
	} else if u.Scheme == "http" && (s.Egress == nil || len(s.Egress.AllowCIDRs) == 0) {
		say("url: without TLS only to addresses that egress.allow_cidrs names")
	}
}

// validatePolicy looks at what a server and a tool can have.
func validatePolicy(say say, approval, risk, timeout string, maxResult int) {
	if !isApproval(approval) {
		say("approval: %q or %q", ApprovalAlways, ApprovalNever)
	}
	if risk != "" && risk != RiskLow && risk != RiskMedium && risk != RiskHigh {
		say("risk: %q, %q or %q", RiskLow, RiskMedium, RiskHigh)
	}
	if _, err := parseTimeout(timeout); err != nil {
		say("timeout: %w", err)
	}
	if maxResult != 0 && (maxResult < minResult || maxResult > project.MaxBytes) {
		say("max_result_bytes: %d to %d", minResult, project.MaxBytes)
	}
}

func validateIdle(say say, timeout string) {
	if _, err := parseTimeout(timeout); err != nil {
		say("idle_timeout: %w", err)
	}
}

// parseTimeout is zero where nothing is said.
func parseTimeout(s string) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, err
	}
	if d <= 0 || d > maxTimeout {
		return 0, fmt.Errorf("%v is not between 0 and %v", d, maxTimeout)
	}
	return d, nil
}

func hasNUL(s string) bool { return strings.ContainsRune(s, 0) }
