package scheduletext

// Circles finds the jobs that follow themselves through others. Each job that leads to no circle is visited once
// in all searches.
type Circles struct {
	followed func(job string) []string
	clear    map[string]bool // jobs that lead to no circle
}

// NewCircles returns a Circles. Followed returns the names of the jobs that a job follows.
func NewCircles(followed func(job string) []string) *Circles {
	return &Circles{followed: followed, clear: map[string]bool{}}
}

// Through returns the names of the jobs through which a job follows itself, from the job on, nil if it does not.
func (c *Circles) Through(start string) []string {
	visited := map[string]bool{}
	var visit func(job string, path []string) []string
	visit = func(job string, path []string) []string {
		if visited[job] || c.clear[job] {
			return nil
		}
		visited[job] = true
		path = append(path, job)
		clear := true
		for _, next := range c.followed(job) {
			if next == start {
				return path
			}
			if circle := visit(next, path); circle != nil {
				return circle
			}
			clear = clear && c.clear[next]
		}
		c.clear[job] = clear
		return nil
	}
	return visit(start, nil)
}
