/** One server-sent event (HTML standard, §9.2). */
type ServerEvent = { event: string; data: string };

/**
 * The events of an answer, as they come. `EventSource` would do, but sends no headers of ours, without which the
 * service takes no cookie.
 */
export async function* eventsOf(response: Response): AsyncGenerator<ServerEvent> {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  try {
    for (;;) {
      const { done, value } = (await reader?.read()) ?? { done: true, value: undefined };
      if (done) return;
      const blocks = (rest + value).split('\n\n');
      rest = blocks.pop() ?? '';
      for (const block of blocks) {
        const found = eventOf(block);
        if (found !== undefined) yield found;
      }
    }
  } finally {
    void reader?.cancel().catch(() => undefined);
  }
}

/** Undefined for comments, and for what tells the pace alone. */
function eventOf(block: string): ServerEvent | undefined {
  let event = 'message';
  const data: string[] = [];
  for (const line of block.split('\n')) {
    if (line.startsWith('event: ')) event = line.slice('event: '.length);
    else if (line.startsWith('data: ')) data.push(line.slice('data: '.length));
  }
  return data.length === 0 ? undefined : { event, data: data.join('\n') };
}
