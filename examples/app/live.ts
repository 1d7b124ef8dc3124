/** Tells the open pages of a person what has changed, by server-sent events. */
import type { ServerResponse } from 'node:http';

export type Live = ReturnType<typeof createLive>;

export function createLive() {
  const open = new Map<string, Set<ServerResponse>>();

  return {
    /** Takes an answer over, which tells `first` and then what comes until the page is closed. */
    add(person: string, answer: ServerResponse, first: object): void {
      const pages = open.get(person) ?? new Set();
      open.set(person, pages.add(answer));
      answer.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-store' });
      send(answer, first);
      // Proxies end a connection on which nothing is said for a minute.
      const beat = setInterval(() => answer.write(':\n\n'), 20_000);
      answer.on('close', () => {
        clearInterval(beat);
        pages.delete(answer);
        if (pages.size === 0) open.delete(person);
      });
    },
    tell(person: string, news: object): void {
      for (const answer of open.get(person) ?? []) send(answer, news);
    },
    close(): void {
      for (const pages of open.values()) for (const answer of pages) answer.end();
    },
  };
}

function send(answer: ServerResponse, news: object): void {
  answer.write(`data: ${JSON.stringify(news)}\n\n`);
}
