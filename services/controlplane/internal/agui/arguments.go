package agui

import (
	"slices"
	"strings"
)

// prefix follows the text of a JSON object while it streams in. What it has
// taken is always the beginning of an object, so that it can be completed.
type prefix struct {
	state  state
	stack  []byte // '{' and '[' that are open
	inKey  bool   // the string is a key
	word   string // what is missing of true, false or null
	broken bool
}

// state is what may come next.
type state int

const (
	atStart      state = iota // {
	atFirstKey                // " or }
	atKey                     // "
	atColon                   // :
	atValue                   // a value
	atFirstValue              // a value or ]
	atNext                    // , or the end of what is open
	atEnd                     // nothing more
	inString                  // characters or "
	inEscape                  // what is escaped
	inHex4                    // four hexadecimal digits ...
	inHex3
	inHex2
	inHex1 // ... one
	inWord
	inSign     // the first digit
	inZero     // no more digits before the point
	inInteger  // digits
	inPoint    // the first digit behind the point
	inFraction // digits
	inE        // a sign or the first digit of the exponent
	inESign    // the first digit of the exponent
	inExponent // digits
)

// take gives as much of the next fragment as may be passed on: all of it unless
// the text can no longer become an object.
func (p *prefix) take(fragment string) string {
	for i := 0; i < len(fragment) && !p.broken; i++ {
		if !p.next(fragment[i]) {
			p.broken = true
			return fragment[:i]
		}
	}
	if p.broken {
		return ""
	}
	return fragment
}

// rest completes what was taken to one object.
func (p *prefix) rest() string {
	var b strings.Builder
	p.broken = true // nothing may follow
	if p.state == atStart {
		return "{}"
	}
	switch p.state { //nolint:exhaustive // the others need nothing
	case inEscape:
		b.WriteString(`\"`)
	case inHex4, inHex3, inHex2, inHex1:
		b.WriteString("0000"[p.state-inHex4:] + `"`)
	case inString:
		b.WriteString(`"`)
	case inWord:
		b.WriteString(p.word)
	case inSign, inPoint, inE, inESign:
		b.WriteString("0")
	case atKey:
		b.WriteString(`"":null`)
	case atColon:
		b.WriteString(`:null`)
	case atValue:
		b.WriteString("null")
	}
	if p.inKey {
		b.WriteString(":null")
	}
	for _, c := range slices.Backward(p.stack) {
		b.WriteByte(c + 2) // { } and [ ] are two apart
	}
	return b.String()
}

// next takes one byte, or reports that it may not come here and changes nothing
// that rest needs.
func (p *prefix) next(c byte) bool {
	switch {
	case p.state >= inSign:
		return p.number(c)
	case p.state == inWord:
		return p.letter(c)
	case p.state >= inString:
		return p.character(c)
	case c == ' ' || c == '\t' || c == '\n' || c == '\r':
		return true
	default:
		return p.token(c)
	}
}

// token takes what may stand between values.
func (p *prefix) token(c byte) bool {
	switch p.state {
	case atStart:
		return c == '{' && p.opens(c)
	case atFirstKey:
		return c == '}' && p.closes(c) || p.key(c)
	case atKey:
		return p.key(c)
	case atColon:
		if c != ':' {
			return false
		}
		p.state = atValue
		return true
	case atFirstValue:
		return c == ']' && p.closes(c) || p.value(c)
	case atValue:
		return p.value(c)
	case atNext:
		if c == ',' {
			p.state = atValue
			if p.stack[len(p.stack)-1] == '{' {
				p.state = atKey
			}
			return true
		}
		return p.closes(c)
	default:
		return false
	}
}

func (p *prefix) opens(c byte) bool {
	p.stack = append(p.stack, c)
	p.state = atFirstKey
	if c == '[' {
		p.state = atFirstValue
	}
	return true
}

func (p *prefix) closes(c byte) bool {
	top := len(p.stack) - 1
	if (c != '}' && c != ']') || p.stack[top]+2 != c {
		return false
	}
	p.stack = p.stack[:top]
	p.ended()
	return true
}

// ended says that a value is whole.
func (p *prefix) ended() {
	p.state = atNext
	if len(p.stack) == 0 {
		p.state = atEnd
	}
}

func (p *prefix) key(c byte) bool {
	if c != '"' {
		return false
	}
	p.state, p.inKey = inString, true
	return true
}

func (p *prefix) value(c byte) bool {
	switch {
	case c == '{' || c == '[':
		return p.opens(c)
	case c == '"':
		p.state = inString
	case c == '-':
		p.state = inSign
	case c == '0':
		p.state = inZero
	case '1' <= c && c <= '9':
		p.state = inInteger
	case c == 't':
		p.state, p.word = inWord, "rue"
	case c == 'f':
		p.state, p.word = inWord, "alse"
	case c == 'n':
		p.state, p.word = inWord, "ull"
	default:
		return false
	}
	return true
}

func (p *prefix) letter(c byte) bool {
	if p.word[0] != c {
		return false
	}
	if p.word = p.word[1:]; p.word == "" {
		p.ended()
	}
	return true
}

// character takes a byte within a string.
func (p *prefix) character(c byte) bool {
	switch {
	case p.state == inString:
		return p.plain(c)
	case p.state == inEscape && c == 'u':
		p.state = inHex4
	case p.state == inEscape && strings.IndexByte(`"\/bfnrt`, c) >= 0:
		p.state = inString
	case p.state == inEscape || !hexadecimal(c):
		return false
	case p.state == inHex1:
		p.state = inString
	default:
		p.state++
	}
	return true
}

func (p *prefix) plain(c byte) bool {
	switch {
	case c == '\\':
		p.state = inEscape
	case c == '"' && p.inKey:
		p.state, p.inKey = atColon, false
	case c == '"':
		p.ended()
	}
	return c >= ' '
}

func hexadecimal(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// number takes a byte within a number, or the first one behind it.
func (p *prefix) number(c byte) bool {
	digit := '0' <= c && c <= '9'
	switch {
	case p.state == inSign && c == '0':
		p.state = inZero
	case p.state == inSign && digit:
		p.state = inInteger
	case p.state == inPoint && digit:
		p.state = inFraction
	case p.state == inE && (c == '+' || c == '-'):
		p.state = inESign
	case (p.state == inE || p.state == inESign) && digit:
		p.state = inExponent
	case p.state == inSign, p.state == inPoint, p.state == inE, p.state == inESign:
		return false
	case digit && p.state != inZero: // more of the same
	case c == '.' && (p.state == inZero || p.state == inInteger):
		p.state = inPoint
	case (c == 'e' || c == 'E') && p.state != inExponent:
		p.state = inE
	default:
		p.ended()
		return p.next(c)
	}
	return true
}
