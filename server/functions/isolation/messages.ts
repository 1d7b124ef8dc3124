/**
 * What is said over the channel. What the service says is read without a check, what the code's side says is checked:
 * that side may be the customer's, with everything of ours in it replaced.
 */
import { z } from 'zod';

/** From the service. Every number of an ask is one that the other side chose. */
export type Order =
  | { t: 'boot'; modules: Record<string, string>; harness: string }
  | { t: 'bundle'; id: string; code: string }
  | {
      t: 'run';
      bundle: string;
      exportName: string;
      kind: string;
      input: unknown;
      about: unknown;
      resultBytes: number;
    }
  | { t: 'cancel' }
  | { t: 'ping'; id: number }
  | { t: 'answer'; id: number; value: unknown; body: boolean }
  | { t: 'refuse'; id: number; error: Refusal }
  | FlowMessage;

/** Why an ask was not answered, for the code that asked. */
export type Refusal = {
  code: string;
  message: string;
  status?: number;
  payload?: unknown;
  errors?: readonly { code: string; message: string; path: string[] }[];
};

/** Of the stream that belongs to an ask. `end`, `cut` come from who sends it, `more`, `drop` from who reads it. */
export type FlowMessage =
  | { t: 'more'; id: number; bytes: number }
  | { t: 'end'; id: number }
  | { t: 'cut'; id: number; message: string }
  | { t: 'drop'; id: number };

const id = z.int().min(1).max(0xffff_ffff);
const short = z.string().max(200);

const thrownError = z.strictObject({
  name: short,
  message: z.string().max(4_096),
  stack: z.string().max(16_384).optional(),
  code: short.optional(),
  payload: z.unknown().optional(),
});

const message = z.discriminatedUnion('t', [
  z.strictObject({ t: z.literal('up') }),
  z.strictObject({ t: z.literal('ask'), id, name: short, args: z.unknown(), body: z.boolean() }),
  z.strictObject({
    t: z.literal('log'),
    level: z.enum(['debug', 'info', 'warn', 'error']),
    text: z.string().max(8_192),
  }),
  z.strictObject({ t: z.literal('done'), result: z.unknown() }),
  z.strictObject({ t: z.literal('failed'), cause: z.enum(['threw', 'stalled']), error: thrownError }),
  z.strictObject({ t: z.literal('ready'), clean: z.boolean() }),
  z.strictObject({ t: z.literal('pong'), id }),
  z.strictObject({ t: z.literal('more'), id, bytes: z.int().min(1) }),
  z.strictObject({ t: z.literal('end'), id }),
  z.strictObject({ t: z.literal('cut'), id, message: z.string().max(1_000) }),
  z.strictObject({ t: z.literal('drop'), id }),
]);

/** From the code's side. */
export type Message = z.infer<typeof message>;
export type ThrownMessage = z.infer<typeof thrownError>;

/** The message in the text; undefined where it is none. */
export function readMessage(text: string): Message | undefined {
  try {
    return message.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}

const maxDepth = 128;

/**
 * Why a value is not to be handed on, undefined if it may be. `__proto__` would change what it is merged into, and what
 * is nested deeper than this overflows the stack of whoever walks it.
 */
export function faultOfJson(value: unknown): string | undefined {
  let level: unknown[] = [value];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > maxDepth) return `It is nested deeper than ${maxDepth} levels.`;
    const next: unknown[] = [];
    for (const item of level) {
      if (item === null || typeof item !== 'object') continue;
      if (Object.hasOwn(item, '__proto__')) return 'It has a key `__proto__`.';
      for (const inner of Object.values(item))
        if (inner !== null && typeof inner === 'object') next.push(inner);
    }
    level = next;
  }
  return undefined;
}
