package stack

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// NotesFile is the sample file that the demo reads.
const NotesFile = "notes.txt"

// sample fills the sample folder if it is not there. One that somebody has changed
// is theirs.
func sample(dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// A crash in between must not leave half of it.
	half := dir + ".new"
	if err := os.RemoveAll(half); err != nil {
		return err
	}
	// Its server is another user, who is shown this folder of a closed one.
	for name, text := range sampleFiles() {
		path := filepath.Join(half, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // see above
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil { //nolint:gosec // see above
			return err
		}
	}
	return os.Rename(half, dir)
}

func sampleFiles() map[string]string {
	return map[string]string{
		"README.txt": `These files are for agents to read. They are served read-only as the tools
fs.list_directory and fs.read_text_file. Change them, or add your own.
`,
		// A word that no model can know: who repeats it has read the file.
		NotesFile: fmt.Sprintf(`The word of the day is %s.
The pumps of the cofferdam were checked at six; the water outside stands at 3.2 metres.
Whoever opens the north valve tells the watch first.
`, rand.Text()[:10]),
		"log/monday.txt": `06:00 pumps checked, both dry
11:40 a diver reports a loose bolt at frame 7
15:10 bolt replaced, no leak found
`,
	}
}
