package proxy

// geminiFollower follows Gemini, which has no terminal event: the stream is whole
// where it ends after every candidate has its finishReason, or where the prompt
// was refused.
type geminiFollower struct {
	finishes

	blocked bool
	used    usage
}

type geminiView struct {
	mayFail

	Candidates []struct {
		Index        int    `json:"index"`
		FinishReason string `json:"finishReason"`
	} `json:"candidates"`
	Feedback struct {
		BlockReason string `json:"blockReason"`
	} `json:"promptFeedback"`
	Usage *struct {
		Prompt     *int64 `json:"promptTokenCount"`
		ToolUse    *int64 `json:"toolUsePromptTokenCount"`
		Candidates *int64 `json:"candidatesTokenCount"`
		Thoughts   *int64 `json:"thoughtsTokenCount"`
	} `json:"usageMetadata"`
}

func (f *geminiFollower) read(data []byte) error {
	var v geminiView
	if err := look(data, &v); err != nil {
		return err
	}
	for _, c := range v.Candidates {
		if err := f.take(c.Index, c.FinishReason != ""); err != nil {
			return err
		}
	}
	f.blocked = f.blocked || v.Feedback.BlockReason != ""
	if u := v.Usage; u != nil {
		f.used.set(sum(u.Prompt, u.ToolUse), sum(u.Candidates, u.Thoughts))
	}
	return nil
}

func (f *geminiFollower) event(data []byte) (step, error) { return step{data: data}, f.read(data) }

func (f *geminiFollower) whole(data []byte) ([]byte, error) {
	if err := f.read(data); err != nil {
		return nil, err
	}
	if !f.mayEnd() {
		return nil, failed(errNoFinish)
	}
	return data, nil
}

func (f *geminiFollower) mayEnd() bool {
	return f.all() || f.blocked && len(f.finished) == 0
}

func (f *geminiFollower) usage() usage { return f.used }
