package web

import (
	"net/http"
	"net/url"
	"slices"

	"github.com/rota-dev/rota/internal/acts"
	"github.com/rota-dev/rota/internal/look"
	"github.com/rota-dev/rota/internal/view"
)

// definitionsOnPage bounds the jobs of a page of definitions.
const definitionsOnPage = 60

// definitionsBody is a page of the jobs that are defined as data.
type definitionsBody struct {
	Kind, Prefix string // the filter
	Sections     []section
	First, Next  string // addresses of pages; empty if there is none
	None         string // why the page is empty
	Define       string // the address of the form for a new job; empty if the user may not define one
}

// showDefinitions shows a page of definitions. It reads no more records than the page needs, however many jobs are defined.
func (c *Console) showDefinitions(w http.ResponseWriter, r *request) error {
	ctx, cancel := call(r)
	defer cancel()
	query := r.URL.Query()
	b := definitionsBody{Kind: query.Get("kind"), Prefix: query.Get("prefix")}
	after := query.Get("after")
	v, next, err := look.DefinitionsPage(ctx, c.op, look.DefinitionsQuery{Kind: b.Kind, Prefix: b.Prefix, After: after, Limit: definitionsOnPage})
	if err != nil {
		return err
	}
	if next != "" {
		b.Next = definitionsLink(query, next)
	}
	if after != "" {
		b.First = definitionsLink(query, "")
	}
	switch {
	case len(v.Definitions) > 0:
		b.Sections = screenOf(shown(r, v).Screen, c.times(r), linkDefinitions)
	case next != "":
		b.None = "None of the jobs that were read matches. There are more."
	case b.Kind+b.Prefix+after != "":
		b.None = "No other job matches."
	default:
		b.None = "No jobs are defined as data."
	}
	if c.mayAct(r, define) == nil {
		if b.Define = "act/" + define; b.Kind != "" {
			b.Define += withQuery(nil, "kind", b.Kind)
		}
	}
	c.render(w, r, http.StatusOK, "definitions", page{Title: "Definitions", Group: c.group(), Body: b})
	return nil
}

// definitionsLink returns the address of the page with the same filter that begins at a cursor.
func definitionsLink(query url.Values, cursor string) string {
	q := keep(query, "kind", "prefix", "zone")
	if cursor != "" {
		q.Set("after", cursor)
	}
	return "definitions?" + q.Encode()
}

// linkDefinitions returns the address of the page of a job or of the jobs of a kind, relative to the fleet's.
func linkDefinitions(column, text string) string {
	switch {
	case column == "NAME":
		return jobLink(text)
	case column == "KIND" && text != "-":
		return "definitions" + withQuery(nil, "kind", text)
	}
	return ""
}

func (c *Console) showKinds(w http.ResponseWriter, r *request) error {
	ctx, cancel := call(r)
	defer cancel()
	v, err := look.Kinds(ctx, c.op)
	if err != nil {
		return err
	}
	b := listBody{Intro: "Kinds of jobs that can be defined as data. The leader counts their jobs every few seconds."}
	b.Sections = screenOf(v.Screen, c.times(r), func(column, text string) string {
		if column == "NAME" {
			return "definitions" + withQuery(nil, "kind", text)
		}
		return ""
	})
	pools, err := look.Pools(ctx, c.op)
	if err != nil {
		return err
	}
	if len(pools.Pools) > 0 {
		b.Sections = append(b.Sections, sectionOfPools(pools, c.times(r)))
	}
	b.Acts = slices.DeleteFunc(c.actLinks(r, acts.OnGroup, "act/"), func(l actLink) bool {
		return l.Name != "set-pool" && (l.Name != "delete-pool" || len(pools.Pools) == 0)
	})
	c.render(w, r, http.StatusOK, "list", page{Title: "Kinds", Group: c.group(), Body: b})
	return nil
}

// sectionOfPools returns the table of pools, which bound the runs of jobs over the group.
func sectionOfPools(v view.Pools, t view.Times) section {
	s := screenOf(v.Screen, t, linkColumns(""))[0]
	s.ID, s.Title = "pools", "Pools"
	return s
}

// addDefinition adds what defines a job as data to its page.
func (c *Console) addDefinition(r *request, b *jobBody) error {
	ctx, cancel := call(r)
	defer cancel()
	v, err := look.Definition(ctx, c.op, b.Job)
	if isUnreachable(err) {
		return err
	}
	if err != nil { // it was deleted since, or its record cannot be read, which the doctor reports
		return nil
	}
	s := screenOf(v.Screen, c.times(r), linkColumns(""))[0]
	s.ID, s.Fields[0].Text.Link = "definition", rootOf(r)+"definitions"+withQuery(nil, "kind", v.Definition.Kind)
	b.Sections = append(b.Sections, s)
	return nil
}
