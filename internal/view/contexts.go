package view

// Contexts are the contexts of the configuration file.
type Contexts struct {
	Version  int       `json:"version"`
	Current  string    `json:"current"`
	Contexts []Context `json:"contexts"`
}

// Context is a fleet by name.
type Context struct {
	Name      string `json:"name"`
	Registry  string `json:"registry"`
	Namespace string `json:"namespace"`
	Group     string `json:"group"`
	Protected bool   `json:"protected"`
}

// Screen returns the table of the contexts.
func (v Contexts) Screen(Times) Screen {
	table := Table{Columns: columns("NAME", "~REGISTRY", "~NAMESPACE", "~GROUP", "PROTECTED")}
	for _, c := range v.Contexts {
		name, protected := c.Name, "no"
		if name == v.Current {
			name += "*"
		}
		if c.Protected {
			protected = "yes"
		}
		table.Rows = append(table.Rows, []string{name, c.Registry, orDash(c.Namespace), orDash(c.Group), protected})
	}
	return Screen{table.orLine("no contexts; rota context set makes one")}
}

// Names returns the names.
func (v Contexts) Names() []string {
	return namesOf(v.Contexts, func(c *Context) string { return c.Name })
}

// Items returns the contexts.
func (v Contexts) Items() []any { return itemsOf(v.Contexts) }
