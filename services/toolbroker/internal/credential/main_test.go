package credential

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// asProgram is the first argument that makes this test binary a program that
// prints a token.
const asProgram = "program-under-test"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == asProgram {
		switch os.Args[2] {
		case "env":
			fmt.Print("environment-" + string(rune('0'+min(len(os.Environ()), 9))))
		case "fail":
			fmt.Print("tok-0123456789")
			os.Exit(3)
		case "hang":
			select {}
		case "flood":
			for {
				if _, err := os.Stdout.Write(make([]byte, 1<<16)); err != nil {
					os.Exit(1)
				}
			}
		case "late":
			fmt.Print(`{"token":"tok-0123456789","expires_at":"2000-01-01T00:00:00Z"}`)
		default:
			fmt.Print(os.Args[2])
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
