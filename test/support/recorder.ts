import pg from 'pg';

/** A statement as it reached the server. */
export type Sent = {
  text: string;
  values: readonly unknown[];
  /** The planner's settings of its transaction: a SELECT of `set_config`, or undefined where it has none. */
  planning: string | undefined;
};

/**
 * Records every statement of this process until it is ended. A flight counts as its statements, and a COPY of a query as the
 * query.
 */
export function recordStatements(): { sent: Sent[]; end(): void } {
  const sent: Sent[] = [];
  const planningOf = new WeakMap<object, string>();
  const end = onEachStatement(({ client, text, values }) => {
    if (/^(begin|commit|rollback)/.test(text)) planningOf.delete(client);
    const statement = /^copy \(([\s\S]*)\) to stdout/.exec(text)?.[1] ?? text;
    sent.push({ text: statement.trim(), values, planning: planningOf.get(client) });
    const settings = text.match(/set_config\('\w+', '\w+', true\)/g);
    if (settings !== null) planningOf.set(client, `select ${settings.join(', ')}`);
  });
  return { sent, end };
}

/** `asked` is what was passed to `query`. */
export type Heard = { client: object; asked: unknown; text: string; values: readonly unknown[] };

/** Passes on each statement of this process, before it is sent, until the returned function is called. */
export function onEachStatement(onStatement: (heard: Heard) => void): () => void {
  const { prototype } = pg.Client as unknown as { prototype: { query(...args: unknown[]): unknown } };
  const { query } = prototype;
  prototype.query = function (this: object, ...args: unknown[]) {
    const [asked, values] = args as [
      string | { text?: string; values?: unknown[]; submit?: unknown },
      unknown[]?,
    ];
    const hear = (text: string, values: readonly unknown[]) =>
      onStatement({ client: this, asked, text, values });
    if (typeof asked === 'string' && /;\ncommit$/.test(asked)) {
      for (const statement of asked.split(';\n')) hear(statement, []);
    } else if (typeof asked === 'string') hear(asked, Array.isArray(values) ? values : []);
    else if (typeof asked.submit !== 'function') {
      // The first statement of a transaction may be sent with `begin`.
      const [, begin, rest = ''] = /^(begin[^\n]*;)\n([\s\S]*)$/.exec(asked.text ?? '') ?? [];
      if (begin !== undefined) hear(begin, []);
      hear(begin === undefined ? (asked.text ?? '') : rest, asked.values ?? []);
    } else
      (asked as { submit(connection: object): unknown }).submit = submitting(
        asked.submit as (connection: object) => unknown,
        (text) => {
          for (const statement of text.split(';\n')) hear(statement, []);
        },
      );
    return query.apply(this, args);
  };
  return () => {
    prototype.query = query;
  };
}

/** Reads the text that a submittable hands to its connection. */
function submitting(submit: (connection: object) => unknown, onText: (text: string) => void) {
  return function (this: object, connection: { query(text: string): unknown }) {
    const heard = new Proxy(connection, {
      get(of, name) {
        const value = Reflect.get(of, name) as unknown;
        if (typeof value !== 'function') return value;
        return (...args: unknown[]) => {
          if (name === 'query') onText(args[0] as string);
          return (value as (...args: unknown[]) => unknown).apply(of, args);
        };
      },
    });
    return submit.call(this, heard);
  };
}
