package conformance

// Clause is a sentence of the contract with what became of it in the suite.
type Clause struct {
	Of       string // the declaration that it documents
	Text     string
	Promises []Promise
	Because  string // why there is none
}

// Promises returns all promises in the order of the contract.
func Promises() []Promise {
	var all []Promise
	seen := map[Promise]bool{}
	for _, c := range Contract {
		for _, p := range c.Promises {
			if !seen[p] {
				all = append(all, p)
				seen[p] = true
			}
		}
	}
	return all
}

// Contract is the text of the contract, sentence by sentence.
var Contract = []Clause{}
