/**
 * The messages of the channel, each of a few fields beside its payload. Those of the service are read without a check.
 * Those of the code's side are checked: that side may be the customer's, with everything of ours in it replaced.
 */
import { z } from 'zod';

/** From the service. Every number of an ask is one that the other side chose. */
export type Order =
  /** Payload: `{ modules, harness }`, texts by name and a text. */
  | { t: 'boot' }
  /** Payload: the text of the bundle. */
  | { t: 'bundle'; id: string }
  /** Payload: `{ input, about }`, any JSON. */
  | { t: 'run'; bundle: string; exportName: string; kind: string; resultBytes: number }
  | { t: 'cancel' }
  | { t: 'ping'; id: number }
  /** Payload: any JSON. */
  | { t: 'answer'; id: number; body: boolean }
  /** Payload: a `Refusal`. */
  | { t: 'refuse'; id: number }
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
type FlowMessage =
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
});

const message = z.discriminatedUnion('t', [
  z.strictObject({ t: z.literal('up') }),
  /** Payload: its arguments, any JSON. */
  z.strictObject({ t: z.literal('ask'), id, name: short, body: z.boolean() }),
  z.strictObject({
    t: z.literal('log'),
    level: z.enum(['debug', 'info', 'warn', 'error']),
    text: z.string().max(8_192),
  }),
  /** Payload: the result, any JSON. */
  z.strictObject({ t: z.literal('done') }),
  /** Payload: that of the error, any JSON or nothing. */
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
