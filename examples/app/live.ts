/** Sends changes to the open pages of a user, by server-sent events. */
import { PassThrough, type Readable } from 'node:stream';

export type Live = ReturnType<typeof createLive>;

export function createLive() {
  const open = new Map<string, Set<PassThrough>>();

  return {
    /** The stream of a page: `first`, then all messages until the page is closed. */
    open(person: string, first: object): Readable {
      const page = new PassThrough();
      const pages = open.get(person) ?? new Set();
      open.set(person, pages.add(page));
      tell(page, first);
      // Proxies close a connection that is idle for a minute.
      const beat = setInterval(() => write(page, ':\n\n'), 20_000);
      page.on('close', () => {
        clearInterval(beat);
        pages.delete(page);
        if (pages.size === 0) open.delete(person);
      });
      return page;
    },
    tell(person: string, news: object): void {
      for (const page of open.get(person) ?? []) tell(page, news);
    },
    /** Ends the streams of a user's pages. Pages that are still signed in reconnect automatically. */
    end(person: string): void {
      for (const page of open.get(person) ?? []) page.end();
    },
    close(): void {
      for (const pages of open.values()) for (const page of pages) page.end();
    },
  };
}

function tell(page: PassThrough, news: object): void {
  write(page, `data: ${JSON.stringify(news)}\n\n`);
}

function write(page: PassThrough, text: string): void {
  if (page.writable) page.write(text);
}
