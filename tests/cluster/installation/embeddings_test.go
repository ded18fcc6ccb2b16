//go:build cluster

package installation

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"cofferdam.dev/pkg/demomodel"
	"cofferdam.dev/tests/cluster/internal/installation"
)

// embeddings are the settings of components/embeddings: the demo model makes them.
var embeddings = map[string]string{"EMBEDDING_ALIAS": "demo", "EMBEDDING_DIMENSION": strconv.Itoa(demomodel.Dimension)}

// With components/embeddings the state facade has the model proxy rank what is remembered, through the one door that this opens.
func TestMemoryIsRankedByMeaning(t *testing.T) {
	i := installation.Shared(t, config)
	talk, key := i.Talk(t, installation.Agent), "note-"+rand.Text()
	talk.Tell(t, fmt.Sprintf(">>call memory_put {\"scope\":\"user\",\"key\":%q,\"content\":\"The boat is in the harbour.\",\"kind\":\"semantic\",\"revision\":0}", key))
	installation.Until(t, "a search that is not ranked by words", func() (bool, error) { // the endpoint may take too long for one
		r := talk.Tell(t, `>>call memory_search {"scope":"user","query":"boat","rank":"vector"}`)
		log := r.String()
		if !strings.Contains(log, key) {
			return false, fmt.Errorf("it does not find %s: %s", key, log)
		}
		if !strings.Contains(strings.ReplaceAll(log, `\`, ""), `"ranked_by":"vector"`) {
			return false, fmt.Errorf("it is not: %s", log)
		}
		return true, nil
	})
	talk.Tell(t, fmt.Sprintf(">>call memory_delete {\"scope\":\"user\",\"key\":%q,\"revision\":1}", key))
}
