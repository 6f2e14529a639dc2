package conformance

// Promise is one thing that a registry promises, in words. The sentences of the contract
// that make it are in Contract, the cases that hold a backend to it have it in Proves.
type Promise string

// Reading.
const (
	GetReturnsTheEntry         Promise = "a read returns the value that was committed, byte for byte"
	AbsentIsErrNotFound        Promise = "a Get of a key that is not there is ErrNotFound"
	ReadsBelongToTheReader     Promise = "what is read belongs to the reader"
	BufferReceivesTheValue     Promise = "a Get fills the Buffer if the value fits"
	PlainReadsNeverGoBack      Promise = "plain reads of a handle never go back in time"
	ReadYourWrites             Promise = "plain reads see what their handle wrote"
	FreshReadsSeeAll           Promise = "a Fresh read sees every write that completed before it"
	ListIsOneLevel             Promise = "a list has the immediate children only"
	ListHoldsValuesOnly        Promise = "a list has only what holds a value"
	ListIsComplete             Promise = "a list has all children"
	ListIsSorted               Promise = "a list is in bytewise order"
	ListOfNothingIsEmpty       Promise = "a directory without children lists as empty, without an error"
	ListedEntriesWereCommitted Promise = "each listed entry is a state that was committed"
	AtomicListingIsOneCommit   Promise = "the entries of an Atomic listing stood together"
	ListingRevBoundsEntries    Promise = "no entry is newer than its listing"
)

// Keys and entries.
const (
	InvalidKeysAreRefused      Promise = "every method refuses a key that breaks a rule of Key"
	KeysAreCheckedFirst        Promise = "keys and sizes are checked before anything is sent"
	OwnedKeysAreLeaves         Promise = "nothing can be below an owned key"
	SeqGrows                   Promise = "Seq grows with each commit, over all keys and handles"
	SeqIsInRange               Promise = "Seq is at least 1 and below 1<<63"
	CreatedStays               Promise = "Created stays while the key exists"
	CreatedChangesOnRecreation Promise = "Created is another after a delete and a create"
	ModifiedIsTheLastWrite     Promise = "Modified names the last write of the value"
	OnlyOwnedKeysHaveOwners    Promise = "Owner is the session of an owned key, and empty for others"
	EntryNamesItsTxn           Promise = "an entry names the transaction that wrote it"
	ZeroTxnIDIsDrawn           Promise = "a transaction without an ID gets one of its own"
)

// Transactions.
const (
	TxnIsAtomic                 Promise = "a transaction commits all of its operations or none"
	TxnCommitsEveryOp           Promise = "a transaction that commits has done every operation"
	TxnHasOneRev                Promise = "all that a transaction writes carries its one Rev"
	ConditionsAreChecked        Promise = "a transaction commits only if its conditions hold"
	ConditionsSeeTheStateBefore Promise = "conditions are judged by the state before the transaction"
	CreateNeedsAbsence          Promise = "Create needs the key to be absent"
	ChangeNeedsTheRev           Promise = "Set and Delete need the key at their Rev"
	RevNeverHoldsAgain          Promise = "a Rev never holds again once the key was written or deleted"
	ZeroRevNamesNothing         Promise = "the zero Rev never holds"
	AbsentMeansNotThere         Promise = "Absent holds while the key does not exist"
	AliveUntilTheEnd            Promise = "Alive holds until the commit that ends the session, and not after"
	DeadOnceEnded               Promise = "Dead holds once the session has ended, and not before"
	CreateOwnedNeedsLiveSession Promise = "CreateOwned of an ended session is ErrSessionLost"
	SetKeepsTheOwner            Promise = "an owned key that is set stays with its owner"
	DeleteSparesDescendants     Promise = "Delete leaves what is below the key"
	CheckOnlyWritesNothing      Promise = "a transaction without operations writes nothing"
	ConflictChangesNothing      Promise = "a transaction that conflicts changes nothing"
	ConflictNamesTheItem        Promise = "a conflict names the first item that did not hold"
	MalformedTxnIsRefused       Promise = "a malformed transaction is ErrInvalidTxn and changes nothing"
	TooLargeIsRefused           Promise = "what is over the limits is ErrTooLarge and changes nothing"
	LimitsAreKept               Promise = "what is within the limits is accepted"
	LimitsArePortable           Promise = "limits are nowhere below PortableLimits"
	WritesAreCopied             Promise = "what is written stays the writer's"
	ManyGoroutines              Promise = "all methods may be called from many goroutines"
)

// Outcomes.
const (
	OutcomesAreTrue          Promise = "what is said to be applied was, and what is said not to be was not"
	UnknownOutcomeIsSaid     Promise = "a transaction whose reply was lost is ErrUnknownOutcome"
	TxnIsSentOnce            Promise = "a transaction is sent at most once"
	TxnFalsifiesItself       Promise = "a transaction that is sent twice is applied once"
	LateTxnDoesNoHarm        Promise = "a transaction that arrives late overwrites nothing newer"
	UnavailableIsSaid        Promise = "reads and sessions that cannot be had now are ErrUnavailable"
	CallsEndWithTheirContext Promise = "a call ends when its context ends, and keeps the cause"
	CallsAreBounded          Promise = "a call without a deadline ends as well"
	QuotaIsSaid              Promise = "what a full store refuses is ErrQuota, is not to be tried again at once, and changes nothing"
	DeletesNeedNoRoom        Promise = "a full store takes deletes"
	PermissionIsSaid         Promise = "what the credentials do not allow is ErrPermission and changes nothing"
)

// Watching.
const (
	SnapshotFirst            Promise = "the first batch is a snapshot of what exists"
	WatchFollowsChanges      Promise = "changes are delivered"
	WatchIsOneLevel          Promise = "a watch tells of the immediate children only"
	WatchTellsEntriesWhole   Promise = "entries of a batch are whole"
	DirNeedNotExist          Promise = "a directory that does not exist can be watched"
	NeverOlderAfterNewer     Promise = "a reader never sees an older state after a newer"
	LastStateArrives         Promise = "the last state of a key is never skipped"
	SlowReaderBlocksNoWriter Promise = "a reader that falls behind holds up no writer"
	WatchOutlivesConnections Promise = "a watcher outlives its connection and catches up"
	WatchEndsWithItsContext  Promise = "a watcher ends with the context given to Watch"
	NextEndsWithItsContext   Promise = "Next ends with its context, and the watcher lives on"
	WatcherCloseWakesNext    Promise = "Close ends a watcher and wakes its reader"
	WatcherCloseFreesAll     Promise = "a closed watcher leaves nothing running"
	BatchesBelongToTheReader Promise = "batches are the reader's to keep"
	BatchesAreSorted         Promise = "a batch has each key once, in order"
	BatchRevBoundsChanges    Promise = "no change is newer than its batch"
	ReadsCatchUpWithBatches  Promise = "a plain read after a batch is at least as new"
	DeltasHoldChanges        Promise = "what a delta tells is a change to what was delivered before"
	EventsArePrompt          Promise = "events arrive within milliseconds when nothing is wrong"
)

// Sessions.
const (
	SessionIDsAreUnique        Promise = "a session id is never used again"
	SessionIDsAreSegments      Promise = "a session id is a key segment without dots"
	GrantedTTLIsNoShorter      Promise = "the granted TTL is no shorter than the one asked for"
	SessionOutlivesItsContext  Promise = "a session outlives the context it was opened with"
	SessionsAreRenewed         Promise = "a session lives while its process and the store do"
	SessionsAreIndependent     Promise = "sessions of one handle are independent"
	SilentSessionsExpire       Promise = "a session that is not heard of for its TTL ends"
	SilenceSuspends            Promise = "a session whose renewals go unanswered is Suspended before it is Lost"
	SuspendedComesBack         Promise = "a session whose connection broke is Suspended and comes back as the same"
	LostBeforeTheStoreActs     Promise = "a session is Lost before the store hands anything of it to others"
	SafeUntilIsKept            Promise = "the store does not end a session before its safe-until, nor does a state outlast it"
	LostIsFinal                Promise = "Lost is final"
	LostIsTold                 Promise = "a session that the store has ended becomes Lost, with the reason"
	ChangedTells               Promise = "Changed is closed at each change of state"
	EndedSessionsStayEnded     Promise = "nothing of an ended session takes effect later"
	SessionEndsAtOneCommit     Promise = "a session and its owned keys end at one commit"
	CloseRemovesOwnedKeys      Promise = "when Close of a session returns nil its owned keys are gone"
	SessionCloseIsFinal        Promise = "a closed session is Closed for good"
	CloseUnreachedLeavesExpiry Promise = "a session that could not be closed ends with its TTL"
)

// Handles.
const (
	HandlesAreIndependent    Promise = "handles are independent of each other"
	ClosedIsErrClosed        Promise = "a closed handle says ErrClosed"
	CloseIsLegalTwice        Promise = "closing twice is legal"
	CloseEndsPendingCalls    Promise = "Close ends pending calls and watchers with ErrClosed"
	CloseClosesSessions      Promise = "Close closes the handle's sessions"
	CloseReturnsByItsContext Promise = "Close returns when its context ends"
	CloseEndsGoroutines      Promise = "when Close returns, every goroutine of the handle has"
	NothingRunsUnopened      Promise = "nothing runs before a handle is opened"

	SilentMembersArePassedOver Promise = "a member that answers nothing is passed over for another"
)

// Locks: of registry.Lock on the backend.
const (
	LockExcludes            Promise = "a lock has one holder at a time, as far as sessions tell"
	LockIsFair              Promise = "a lock goes to those who wait in the order in which they came"
	LockSkipsTheDead        Promise = "a lock goes to nobody whose session has ended"
	WaitersCanLeave         Promise = "one who waits stops with its context or its session, and leaves the line"
	FencesGrow              Promise = "the fence of a holder is greater than that of every earlier one"
	GuardEndsWithTheTenure  Promise = "the guard of a holder holds until the lock changes hands, and not after"
	ReleaseSparesSuccessors Promise = "a release can free no other tenure than its own"
	LockIsNotReentrant      Promise = "a session that holds the lock is refused, not kept waiting for itself"
	LockOutlivesTheStore    Promise = "a lock is held over a restart of the store"
)
