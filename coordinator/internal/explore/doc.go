// Package explore searches small worlds for a broken promise. Its tests run the decisions and steps
// of the loops of package member against a model of the store, in every order, with every fault,
// and again without each of the conditions (guards) that their transactions carry. It has tests
// only.
package explore
