/**
 * The messages of the channel, each with a few fields and a payload. The process trusts the messages of the service. The service
 * validates the messages of the process, because customer code may control that side completely.
 */
import { z } from 'zod';

/** Messages from the service. The process assigns the numbers of calls. */
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

/** Why a call failed, for the code. */
export type Refusal = {
  code: string;
  message: string;
  status?: number;
  payload?: unknown;
  errors?: readonly { code: string; message: string; path: string[] }[];
};

/** For the stream of a call. The sender sends `end` and `cut`, the reader sends `more` and `drop`. */
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
  z.strictObject({ t: z.literal('call'), id, name: short, body: z.boolean() }),
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

/** A message from the process. */
export type Message = z.infer<typeof message>;
export type ThrownMessage = z.infer<typeof thrownError>;

/** Undefined if the text is not a valid message. */
export function readMessage(text: string): Message | undefined {
  try {
    return message.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}
