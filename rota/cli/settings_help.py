"""What each setting means, in a line, for `rota config`; a test keeps it complete."""

from __future__ import annotations

from rota.presets import PRESETS

SECTIONS = {
    "server": "How the process listens and stores.",
    "scheduler": "Limits; all but enabled, strategy and startPaused can be reloaded.",
    "webhooks": "How callbacks are delivered.",
    "executors": "Ways to run tasks, each at one address.",
    "types": "What tasks of one action get unless they say otherwise.",
    "browseros": "What tasks get that come in as BrowserOS's.",
    "browsermanager": "Where BrowserManager's jobs come in.",
    "agent": "BrowserManager's names for some limits; they go before the scheduler's.",
}

PRESETS_MEANING = f"--preset brings ready-made settings: {', '.join(PRESETS)}"

MEANINGS = {
    "server.host": "address to listen on; beyond loopback only with tokens",
    "server.port": "port; 0 takes a free one",
    "server.dataDir": "folder of the log",
    "server.tokens": "who may ask, by name; without any, everybody on this machine",
    "server.bodyBytesMax": "largest body of a request",
    "server.bodyTimeoutS": "how long a body may take to come",
    "server.connectionsMax": "connections at once",
    "server.graceS": "how long what runs may go on after SIGTERM",
    "server.mapBytes": "address space of the log, not disk; it grows when it must",
    "server.snapshotEveryEvents": "how often the state is saved, for a quick start",
    "server.allowNetworkFs": "let the folder lie on a network file system, at your own risk",
    "server.onEvent": "functions that hear of every fact, as package.module:function",
    "scheduler.enabled": "serve the paths of PinchTab and BrowserOS, too",
    "scheduler.strategy": "whose turn it is between agents",
    "scheduler.maxQueueSize": "waiting tasks",
    "scheduler.maxPerAgent": "waiting tasks of one agent",
    "scheduler.maxInflight": "tasks in flight",
    "scheduler.maxPerAgentInflight": "tasks in flight of one agent",
    "scheduler.resultTTLSec": "how long lists show an ended task; by its id it is found for ever",
    "scheduler.workerCount": "attempts that rota itself runs at once",
    "scheduler.maxPerKey": "tasks in flight of one key",
    "scheduler.agingMs": "waiting so long makes a task one priority more urgent; 0 for never",
    "scheduler.startPaused": "dispatch nothing after a start until `rota resume`",
    "webhooks.allowHosts": "hosts of your own network that may be called back",
    "webhooks.secret": "signs callbacks; the newest first, if there are several",
    "webhooks.timeoutMs": "how long one try may take",
    "webhooks.attempts": "tries before a callback is abandoned",
    "webhooks.parallel": "callbacks at once, over all hosts",
    "webhooks.perHost": "callbacks at once to one host",
    "executors.kind": "http, tab or chat",
    "executors.url": "where it is called",
    "executors.headers": "headers it is called with",
    "types.executor": "pull (a worker takes it), builtin, or the name of an executor",
    "types.timeoutMs": "how long one attempt may take",
    "types.timeoutMsMax": "the most that a task may ask for",
    "types.queueTimeoutMs": "how long a task may be ready without being dispatched",
    "types.maxConcurrent": "tasks in flight of this type",
    "types.retry": "when to try again; without it, never",
    "types.onInterrupt": "retry or fail when the server goes away under an attempt",
    "browseros.agent": "whose queue they go to",
    "browseros.maxConcurrent": "tasks in flight",
    "browseros.timeoutMs": "how long one attempt may take",
    "browseros.timeoutMsMax": "the most that a task may ask for",
    "browseros.retry": "when to try again; a task's maxRetries goes before it",
    "browsermanager.agent": "whose queue jobs go to that name no agent",
    "browsermanager.routes": "paths under /api, each for one type of job",
    "agent.maxConcurrentJobs": "jobs in flight, instead of scheduler.maxInflight",
    "agent.maxConcurrentBrowsers": "jobs in flight that use a browser",
    "agent.maxQueueSize": "waiting jobs, instead of scheduler.maxQueueSize",
    "agent.maxJobsPerProfile": "jobs in flight of one profile, instead of scheduler.maxPerKey",
}
"""By section and name; the tables inside of `executors` and `types` are all alike."""
