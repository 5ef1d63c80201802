package smack

import "bytes"

// cipso reads a file of cipso.d and says what the other reader makes of it.
func (im *importer) cipso(f File) {
	list, forms, err := readCipso(f.Name, f.Data, im.cipsoAt)
	if im.failAll(err) {
		return
	}
	im.out.Settings.Cipso = append(im.out.Settings.Cipso, list...)
	im.comments(f, func(row []byte) string {
		if _, _, err := parseCipso(row); err != nil {
			return ""
		}
		return "the line is left out as a comment; libsmack takes it for an entry of a label that begins with #"
	})
	at := Place{File: f.Name}
	if forms[CipsoWords] > 0 {
		im.note(at, WarnDialect, "%d entries in libsmack's form: label, level, categories; systemd hands them to the kernel, which refuses them", forms[CipsoWords])
	}
	if forms[CipsoColumns] > 0 {
		im.note(at, WarnDialect, "%d entries in the kernel's form, with a count in columns of four bytes, as systemd needs them; libsmack takes the count for a category", forms[CipsoColumns])
	}
}

func (im *importer) netlabel(f File) {
	v4, v6, warnings, err := readNetlabel(f.Name, f.Data, im.prefixAt)
	if im.failAll(err) {
		return
	}
	im.out.Settings.Netlabel = append(im.out.Settings.Netlabel, v4...)
	im.out.Settings.IPv6Host = append(im.out.Settings.IPv6Host, v6...)
	im.out.Notes = append(im.out.Notes, warnings...)
	if len(v6) > 0 {
		im.note(Place{File: f.Name}, WarnDialect, "the file has IPv6 addresses: systemd hands them to netlabel, which takes IPv4 alone, and stops reading the file")
	}
	im.comments(f, func([]byte) string { return "netlabel.d knows no comments: systemd stops reading the file here" })
}

// comments notes the first line that is left out as a comment and is something else for others, as
// what tells; "" is nothing.
func (im *importer) comments(f File, what func(row []byte) string) {
	number := 0
	for row := range bytes.Lines(f.Data) {
		number++
		if row = bytes.Trim(row, " \t\r\n"); len(row) > 0 && row[0] == '#' {
			if text := what(row); text != "" {
				im.note(Place{f.Name, number, 1}, WarnComment, "%s", text)
				return
			}
		}
	}
}

// labels reads onlycap or unconfined.
func (im *importer) labels(f File, kind string) {
	list, err := ReadLabels(f.Name, f.Data)
	other, again := im.single[kind]
	switch {
	case im.failAll(err):
		return
	case again:
		im.fail(Place{File: f.Name}, ErrInvalid, "%s says what %s is already", other, kind)
		return
	case kind == "unconfined" && len(list) != 1:
		im.fail(Place{File: f.Name}, ErrSyntax, "%d labels, unconfined takes one", len(list))
		return
	case kind == "unconfined":
		im.out.Settings.Unconfined = list[0]
		im.note(Place{File: f.Name}, WarnDialect, "only a patched systemd reads the file")
	default:
		im.out.Settings.Onlycap = list
		if len(list) == 0 {
			im.note(Place{File: f.Name}, WarnDialect, "there is no label in it: onlycap is left alone")
		}
	}
	im.single[kind] = f.Name
	im.comments(f, func(row []byte) string {
		for _, word := range bytes.Fields(row) {
			if CheckLabel(string(word)) != nil {
				return ""
			}
		}
		return "the line is left out as a comment; libsmack and systemd know none there, and take its words for labels"
	})
}
