"""The jobs that are not ok, or an act: client.py URL [VERB JOB [REASON]], with the URL of the console and a token in ROTA_TOKEN."""
import json, os, sys, urllib.error, urllib.parse, urllib.request, uuid


def call(url, body=None):
    """Returns the answer, and the URL of its next page or None. A failed request is repeated with its key, so that it acts once."""
    headers = {"Authorization": "Bearer " + os.environ.get("ROTA_TOKEN", ""), "Content-Type": "application/json", "Idempotency-Key": str(uuid.uuid4())}
    request = urllib.request.Request(url, None if body is None else json.dumps(body).encode(), headers)
    for attempt in range(3):
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                link = answer.headers.get("Link")
                return json.load(answer), link and urllib.parse.urljoin(url, link[1:link.index(">")])
        except urllib.error.HTTPError as error:
            problem = json.load(error)
            sys.exit("{title}: {detail} ({type})".format_map({"detail": "", **problem}))
        except OSError as error:
            last = error
    sys.exit(f"{url}: {last}")


base, act = sys.argv[1].rstrip("/") + "/api/v1/", sys.argv[2:]
if act:
    path = "jobs/" + urllib.parse.quote(act[1], safe="") + "/" + act[0]
    print(call(base + path, {"reason": " ".join(act[2:])})[0]["text"])
url = None if act else base + "jobs?limit=1000"
while url:
    jobs, url = call(url)
    sys.stdout.writelines(f"{job['name']}: {job['text']}\n" for job in jobs["jobs"] if job["state"] != "ok")
