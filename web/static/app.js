// The page follows the fleet: when the stream says that something has changed, the same address is fetched again, and what differs is
// patched in place, so that focus, selection, open details and typed text stay. Without this script, the page works and stands still.
"use strict";
(() => {
	const root = document.currentScript.dataset.root || "./";
	const live = document.getElementById("live");
	const say = (text) => { if (live && live.textContent !== text) live.textContent = text; };
	if (document.querySelector("form.act") || !live) return; // a question stays as it was asked

	// patch makes the element or text a like b.
	const patch = (a, b) => {
		if (a.isEqualNode(b)) return;
		if (a.nodeType !== b.nodeType || a.nodeName !== b.nodeName) { a.replaceWith(document.importNode(b, true)); return; }
		if (a.nodeType !== Node.ELEMENT_NODE) { a.nodeValue = b.nodeValue; return; }
		for (const { name } of [...a.attributes]) {
			if (!b.hasAttribute(name) && !(a.nodeName === "DETAILS" && name === "open")) a.removeAttribute(name);
		}
		for (const { name, value } of b.attributes) {
			if (a.getAttribute(name) !== value) a.setAttribute(name, value);
		}
		if (a.nodeName !== "INPUT") patchChildren(a, b);
	};
	const patchChildren = (a, b) => {
		const byID = new Map([...a.children].filter((e) => e.id).map((e) => [e.id, e]));
		let at = a.firstChild;
		for (const want of [...b.childNodes]) {
			const known = want.id && byID.get(want.id);
			if (known && known !== at) {
				a.insertBefore(known, at);
				patch(known, want);
				continue;
			}
			if (!at || (at.id && !known && want.id)) {
				a.insertBefore(document.importNode(want, true), at);
				continue;
			}
			const next = at.nextSibling;
			patch(at, want);
			at = next;
		}
		while (at) { const next = at.nextSibling; at.remove(); at = next; }
	};

	let busy = false, again = false, pace = 0;
	const keepPace = (least) => { // a part of the page may need more than the events, such as the log of a run that goes on
		const part = document.querySelector("main [data-again]");
		clearTimeout(pace);
		if (part) pace = setTimeout(refresh, Math.max(least, Number(part.dataset.again) || 0));
	};
	const refresh = async () => {
		if (document.hidden) { again = true; return; }
		if (busy) { again = true; return; }
		busy = true; again = false;
		let least = 250;
		try {
			const answer = await fetch(location.href, { headers: { Accept: "text/html" }, redirect: "error" });
			if (!answer.ok) throw new Error(answer.status);
			const page = new DOMParser().parseFromString(await answer.text(), "text/html");
			for (const part of ["main", "footer"]) {
				const a = document.querySelector(part), b = page.querySelector(part);
				if (!a || !b) continue;
				const status = b.querySelector("#live");
				if (status) status.textContent = live.textContent;
				const said = a.querySelector(".said"), to = b.querySelector("h1");
				if (said && to && !b.querySelector(".said")) to.after(document.importNode(said, true)); // until the viewer leaves the page
				patch(a, b);
			}
			say("Followed.");
		} catch {
			say("Not followed: the console does not answer.");
			least = 5000;
		}
		busy = false;
		keepPace(least);
		if (again) setTimeout(refresh, 250);
	};

	// One tab of a browser holds the stream and tells the others, since browsers limit connections to a host.
	const others = "BroadcastChannel" in window ? new BroadcastChannel("rota " + new URL(root, location.href).pathname) : null;
	if (others) others.onmessage = refresh;
	let stream = null, poll = 0;
	const listen = () => {
		if (stream) return;
		stream = new EventSource(root + "events");
		const refreshAll = () => { refresh(); if (others) others.postMessage(0); };
		stream.onmessage = refreshAll;
		stream.onopen = () => { say("Followed."); clearInterval(poll); poll = 0; };
		stream.onerror = () => { if (!poll) poll = setInterval(refreshAll, 5000); };
	};
	if (navigator.locks) navigator.locks.request("rota " + new URL(root, location.href).pathname, () => { listen(); return new Promise(() => {}); });
	else listen();
	document.addEventListener("visibilitychange", () => { if (!document.hidden && again) refresh(); });
	setTimeout(() => say("Followed."), 0);
	keepPace(250);
})();
