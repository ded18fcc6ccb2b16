package certify

import (
	"errors"
	"fmt"
)

// sight is something that was looked for in a place.
type sight struct {
	// Place and What name it, for people; neither is a secret or a text of somebody.
	Place, What string
	// Seen says that it is there, and Wanted that it should be: it shows that the look
	// finds what is there.
	Seen, Wanted bool
}

// judgeSights sees that what should be there is, that nothing else is, and that there
// was something to be found at all.
func judgeSights(sights []sight) error {
	var errs []error
	controls, looks := 0, 0
	for _, s := range sights {
		if s.Wanted {
			controls++
		} else {
			looks++
		}
		switch {
		case s.Wanted && !s.Seen:
			errs = append(errs, fmt.Errorf("%s lacks %s, so that a look into it proves nothing", s.Place, s.What))
		case s.Seen && !s.Wanted:
			errs = append(errs, fmt.Errorf("%s shows %s", s.Place, s.What))
		}
	}
	if controls == 0 || looks == 0 {
		errs = append(errs, fmt.Errorf("%d looks and %d that have to find something: nothing is shown", looks, controls))
	}
	return errors.Join(errs...)
}
