package conformance

// Promise is a property that every registry guarantees. Contract lists the sentences that
// make it, Case.Proves the cases that test it.
type Promise string

// Reading.
const (
	GetReturnsTheEntry         Promise = "a read returns the committed value byte for byte"
	AbsentIsErrNotFound        Promise = "a Get of an absent key returns ErrNotFound"
	ReadsBelongToTheReader     Promise = "callers may modify the values they read"
	BufferReceivesTheValue     Promise = "Get fills the Buffer if the value fits"
	PlainReadsNeverGoBack      Promise = "plain reads of a handle never go back in time"
	ReadYourWrites             Promise = "plain reads see their own handle's writes"
	FreshReadsSeeAll           Promise = "a Fresh read sees every write that completed before it"
	ListIsOneLevel             Promise = "a list contains only immediate children"
	ListHoldsValuesOnly        Promise = "a list contains only keys that hold a value"
	ListIsComplete             Promise = "a list contains every child"
	ListIsSorted               Promise = "a list is in bytewise order"
	ListOfNothingIsEmpty       Promise = "a directory without children lists as empty, without an error"
	ListedEntriesWereCommitted Promise = "each listed entry is a committed state"
	AtomicListingIsOneCommit   Promise = "the entries of an Atomic listing existed together at one commit"
	ListingRevBoundsEntries    Promise = "no entry is newer than its listing"
)

// Keys and entries.
const (
	InvalidKeysAreRefused      Promise = "every method rejects a key that breaks a rule of Key"
	KeysAreCheckedFirst        Promise = "keys and sizes are checked before anything is sent"
	OwnedKeysAreLeaves         Promise = "an owned key has no children"
	SeqGrows                   Promise = "Seq grows with each commit, over all keys and handles"
	SeqIsInRange               Promise = "Seq is at least 1 and below 1<<63"
	CreatedStays               Promise = "Created stays while the key exists"
	CreatedChangesOnRecreation Promise = "Created changes when a key is deleted and re-created"
	ModifiedIsTheLastWrite     Promise = "Modified names the last write of the value"
	OnlyOwnedKeysHaveOwners    Promise = "Owner is the session of an owned key, and empty for others"
	EntryNamesItsTxn           Promise = "an entry names the transaction that wrote it"
	ZeroTxnIDIsDrawn           Promise = "a transaction without an ID gets a unique one"
)

// Transactions.
const (
	TxnIsAtomic                 Promise = "a transaction commits all of its operations or none"
	TxnCommitsEveryOp           Promise = "a committed transaction has applied every operation"
	TxnHasOneRev                Promise = "all writes of a transaction carry the same Rev"
	ConditionsAreChecked        Promise = "a transaction commits only if its conditions hold"
	ConditionsSeeTheStateBefore Promise = "conditions are evaluated against the state before the transaction"
	CreateNeedsAbsence          Promise = "Create requires the key to be absent"
	ChangeNeedsTheRev           Promise = "Set and Delete require the key to be at the given Rev"
	RevNeverHoldsAgain          Promise = "a Rev never holds again once the key was written or deleted"
	ZeroRevNamesNothing         Promise = "the zero Rev never holds"
	AbsentHoldsWithoutKey       Promise = "Absent holds while the key does not exist"
	AliveUntilTheEnd            Promise = "Alive holds until the commit that ends the session, and not after"
	DeadOnceEnded               Promise = "Dead holds once the session has ended, and not before"
	CreateOwnedNeedsLiveSession Promise = "CreateOwned with an ended session returns ErrSessionLost"
	SetKeepsTheOwner            Promise = "Set leaves the owner of an owned key unchanged"
	DeleteSparesDescendants     Promise = "Delete leaves the key's descendants"
	CheckOnlyWritesNothing      Promise = "a transaction without operations writes nothing"
	ConflictChangesNothing      Promise = "a transaction that conflicts changes nothing"
	ConflictNamesTheItem        Promise = "a conflict names the first item that did not hold"
	MalformedTxnIsRefused       Promise = "a malformed transaction returns ErrInvalidTxn and changes nothing"
	TooLargeIsRefused           Promise = "a transaction over the limits returns ErrTooLarge and changes nothing"
	LimitsAreKept               Promise = "a transaction within the limits is accepted"
	LimitsArePortable           Promise = "limits are at least PortableLimits"
	WritesAreCopied             Promise = "callers may modify a value after writing it"
	ManyGoroutines              Promise = "all methods are safe for concurrent use"
)

// Outcomes.
const (
	OutcomesAreTrue             Promise = "a transaction is applied if it is reported as applied, and not if reported as not applied"
	LostReplyIsUnknownOutcome   Promise = "a transaction whose reply was lost returns ErrUnknownOutcome"
	TxnIsSentOnce               Promise = "a transaction is sent at most once"
	TxnFalsifiesItself          Promise = "a transaction that is sent twice is applied once"
	LateTxnDoesNoHarm           Promise = "a transaction that arrives late overwrites nothing newer"
	UnreachableIsErrUnavailable Promise = "reads and sessions that the store cannot serve now return ErrUnavailable"
	CallsEndWithTheirContext    Promise = "a call ends when its context ends, and its error wraps the cause"
	CallsAreBounded             Promise = "a call without a deadline ends too"
	FullStoreIsErrQuota         Promise = "a full store returns ErrQuota, which is not retryable, and changes nothing"
	DeletesNeedNoRoom           Promise = "a full store accepts deletes"
	ForbiddenIsErrPermission    Promise = "a call without permission returns ErrPermission and changes nothing"
)

// Watching.
const (
	SnapshotFirst             Promise = "the first batch is a snapshot of what exists"
	WatchFollowsChanges       Promise = "changes are delivered"
	WatchIsOneLevel           Promise = "a watch reports only immediate children"
	WatchedEntriesAreComplete Promise = "entries of a batch are complete"
	DirNeedNotExist           Promise = "a directory that does not exist can be watched"
	NeverOlderAfterNewer      Promise = "a reader never sees an older state after a newer one"
	LastStateArrives          Promise = "the last state of a key is never skipped"
	SlowReaderBlocksNoWriter  Promise = "a slow reader blocks no writer"
	WatchOutlivesConnections  Promise = "a watcher survives its connection and catches up"
	WatchEndsWithItsContext   Promise = "a watcher ends with the context given to Watch"
	NextEndsWithItsContext    Promise = "Next returns when its context ends, and the watcher stays usable"
	WatcherCloseWakesNext     Promise = "Close ends a watcher and wakes its reader"
	WatcherCloseFreesAll      Promise = "a closed watcher leaves nothing running"
	BatchesBelongToTheReader  Promise = "callers may keep and modify the batches they receive"
	BatchesAreSorted          Promise = "a batch holds each key once, in order"
	BatchRevBoundsChanges     Promise = "no change is newer than its batch"
	ReadsCatchUpWithBatches   Promise = "a plain read after a batch is at least as new"
	DeltasHoldChanges         Promise = "a delta holds only changes to the state delivered before"
	EventsArePrompt           Promise = "events arrive within milliseconds while there are no faults"
)

// Sessions.
const (
	SessionIDsAreUnique        Promise = "a session id is never used again"
	SessionIDsAreSegments      Promise = "a session id is a key segment without dots"
	GrantedTTLIsNoShorter      Promise = "the granted TTL is no shorter than the one asked for"
	SessionOutlivesItsContext  Promise = "a session outlives the context it was opened with"
	SessionsAreRenewed         Promise = "a session lives while its process and the store run"
	SessionsAreIndependent     Promise = "sessions of one handle are independent"
	SilentSessionsExpire       Promise = "a session without renewals expires after its TTL"
	SilenceSuspends            Promise = "a session without answers to its renewals is Suspended before it is Lost"
	SuspendedComesBack         Promise = "a session whose connection broke is Suspended, then Connected again under the same ID"
	LostBeforeTheStoreActs     Promise = "a session is Lost before the store releases anything it owned"
	SafeUntilIsKept            Promise = "the store keeps a session until its safe-until, and no live state outlasts it"
	LostIsFinal                Promise = "Lost is final"
	ExpiryBecomesLost          Promise = "a session that the store ended becomes Lost and reports why"
	ChangedClosesOnChange      Promise = "Changed is closed at each change of state"
	EndedSessionsStayEnded     Promise = "no write of an ended session takes effect later"
	SessionEndsAtOneCommit     Promise = "a session and its owned keys end in one commit"
	CloseRemovesOwnedKeys      Promise = "when Close of a session returns nil, its owned keys are gone"
	SessionCloseIsFinal        Promise = "a closed session stays Closed"
	EndedSessionsFreeAll       Promise = "an ended session leaves nothing running"
	CloseUnreachedLeavesExpiry Promise = "a session that could not be closed expires with its TTL"
)

// Handles.
const (
	HandlesAreIndependent    Promise = "handles are independent of each other"
	ClosedIsErrClosed        Promise = "a closed handle returns ErrClosed"
	CloseIsLegalTwice        Promise = "closing twice is legal"
	CloseEndsPendingCalls    Promise = "Close ends pending calls and watchers with ErrClosed"
	CloseClosesSessions      Promise = "Close closes the handle's sessions"
	CloseReturnsByItsContext Promise = "Close returns when its context ends"
	CloseEndsGoroutines      Promise = "when Close returns, the handle's goroutines have ended"
	NothingRunsBeforeOpen    Promise = "no goroutine runs before a handle is opened"

	SilentMembersAreSkipped Promise = "a member that does not answer is skipped in favor of another"
)

// Locks: promises of registry.Lock on the backend.
const (
	LockExcludes            Promise = "a lock has at most one holder whose session lives"
	LockIsFair              Promise = "waiters acquire a lock in the order of arrival"
	LockSkipsEndedSessions  Promise = "a lock is never granted to an ended session"
	WaitersCanLeave         Promise = "a waiter leaves the queue when its context or its session ends"
	FencesGrow              Promise = "the fence of a holder is greater than every earlier one"
	GuardEndsWithTheTenure  Promise = "a holder's guard holds until the lock changes hands, and not after"
	ReleaseSparesSuccessors Promise = "a release frees no tenure but its own"
	LockIsNotReentrant      Promise = "a session that holds the lock gets an error instead of waiting for itself"
	LockOutlivesTheStore    Promise = "a lock stays held across a restart of the store"
)
