package cli

import (
	"time"

	"cofferdam.dev/deploy/local/internal/datadir"
	"cofferdam.dev/deploy/local/internal/issuer"
	"cofferdam.dev/deploy/local/internal/stack"
)

// linkTTL is how long the link to the page for people is good.
const linkTTL = 10 * time.Minute

// pageLink makes a link to the page for people that signs the operator in, once. What
// signs in stands in the fragment, which no browser sends and no server logs.
func pageLink(d datadir.Dir, operator string) (string, error) {
	i, err := issuer.Load(d)
	if err != nil {
		return "", err
	}
	code, err := i.Token(issuer.Request{Subject: stack.Operator, TTL: linkTTL, Link: true})
	if err != nil {
		return "", err
	}
	return operator + "/ui/#code=" + code, nil
}

// sayLink tells a person of the page.
func sayLink(env Env, s *stack.Stack) error {
	link, err := pageLink(s.Dir(), s.Info().Operator)
	if err != nil {
		return err
	}
	say(env.Stderr, "a page for people, signed in once within %v: %s\n", linkTTL, link)
	return nil
}
