"use strict";
(() => {
	const lost = document.getElementById("lost");

	// localTimes shows times by the clock of this browser: the server has written them by its own.
	function localTimes(root) {
		const two = (n) => String(n).padStart(2, "0");
		for (const time of root.querySelectorAll("time")) {
			const at = new Date(time.dateTime);
			const date = time.textContent.includes("-") ? `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ` : "";
			time.textContent = date + [at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(":");
		}
	}
	localTimes(document);

	// swap puts the parts of a page that have changed in the place of the old ones. The server has escaped what is in them,
	// and the policy of the page lets nothing in them run.
	function swap(text) {
		const page = new DOMParser().parseFromString(text, "text/html");
		localTimes(page);
		const selection = getSelection();
		for (const part of page.querySelectorAll("[data-live]")) {
			const old = document.getElementById(part.id);
			if (!old || old.outerHTML === part.outerHTML) continue;
			if (!selection.isCollapsed && selection.containsNode(old, true)) continue; // Somebody copies it.
			const focused = old.contains(document.activeElement) ? document.activeElement : null;
			if (focused && focused.matches("input")) continue;
			const link = focused && focused.getAttribute("href");
			const fresh = document.adoptNode(part);
			old.replaceWith(fresh);
			if (link) {
				const again = [...fresh.querySelectorAll("a")].find((a) => a.getAttribute("href") === link);
				if (again) again.focus({ preventScroll: true });
			}
		}
		lost.hidden = true;
	}

	// A page of a name is told what there is, while somebody sees it: browsers have few connections for each server.
	const stream = document.querySelector("[data-events]");
	if (stream) {
		let events = null;
		const follow = () => {
			if (document.hidden || (events && events.readyState !== EventSource.CLOSED)) return;
			events = new EventSource(stream.dataset.events);
			events.onmessage = (e) => swap(e.data);
			events.onerror = () => { lost.hidden = false; };
		};
		document.addEventListener("visibilitychange", () => {
			if (document.hidden && events) events.close();
			follow();
		});
		addEventListener("pagehide", () => events && events.close());
		addEventListener("pageshow", follow);
		setInterval(follow, 5000);
		follow();
	}

	// A list is looked at anew.
	const list = document.querySelector("[data-refresh]");
	if (list) {
		setInterval(async () => {
			if (document.hidden) return;
			try {
				const answer = await fetch(location.href);
				if (!answer.ok) throw new Error(answer.statusText);
				swap(await answer.text());
			} catch {
				lost.hidden = false;
			}
		}, 1000 * list.dataset.refresh);
	}

	function step(by) {
		const rows = [...document.querySelectorAll("a[data-row]")];
		const at = rows.indexOf(document.activeElement);
		const next = rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + by, 0), rows.length - 1)];
		if (next) next.focus();
	}

	document.addEventListener("keydown", (e) => {
		if (e.ctrlKey || e.metaKey || e.altKey) return;
		const typing = e.target.matches("input, select, textarea");
		if (typing && e.key === "Escape") e.target.blur();
		if (typing) return;
		switch (e.key) {
		case "/": {
			const filter = document.getElementById("filter");
			e.preventDefault();
			if (filter) {
				filter.focus();
				filter.select();
			} else {
				location.href = "/#filter";
			}
			break;
		}
		case "j": step(1); break;
		case "k": step(-1); break;
		}
	});
	if (location.hash === "#filter") {
		const filter = document.getElementById("filter");
		if (filter) filter.focus();
	}
})();
