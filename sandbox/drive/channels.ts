/**
 * Push channels: notifications over HTTP for changes of a file, or of all files of an account.
 *
 * Channels are in memory: a restart drops them, like a channel that Google lost silently.
 * Unlike Google, the sandbox does not retry a notification after a 5xx. Source:
 * https://developers.google.com/workspace/drive/api/guides/push
 */
import { createHash } from 'node:crypto';
import type { Access } from '../api.ts';
import { isLoopback } from '../security-events.ts';
import {
  badRequest,
  channelIdNotUnique,
  channelNotFound,
  pushAddressNotHttps,
  pushAddressUnauthorized,
} from './errors.ts';

type Granted = Access & { ok: true };

interface Channel {
  readonly id: string;
  readonly resourceId: string;
  readonly resourceUri: string;
  readonly token: string | undefined;
  readonly address: string;
  /** Milliseconds since 1970. */
  readonly expiresAt: number;
  readonly owner: { sub: string; clientId: string };
  /** Undefined: all changes of the account. */
  readonly fileId: string | undefined;
  messages: number;
}

/** The maximum and default lifetimes of a channel. */
const longestMs = { file: 86_400_000, changes: 604_800_000 };
const defaultMs = 3_600_000;
const channelLimit = 10_000;
const deliveryMs = 10_000;

/** The channels of a sandbox at `url`. */
export class Channels {
  #channels = new Map<string, Channel>();
  #sending = new Set<Promise<void>>();
  #closing = new AbortController();
  #url: string;
  #now: () => number;

  constructor({ url, now }: { url: string; now: () => number }) {
    this.#url = url;
    this.#now = now;
  }

  /** Opens a channel and posts its message `sync`; returns the channel resource. Throws Google's errors as `DriveError`. */
  open(access: Granted, { fileId, body }: { fileId: string | undefined; body: Buffer }): object {
    const asked = readChannel(body);
    if (!asked.address.startsWith('https:') && !isLoopback(asked.address)) throw pushAddressNotHttps();
    // The sandbox posts to this machine only, so other domains are not authorized.
    if (!isLoopback(asked.address)) throw pushAddressUnauthorized(asked.address);
    this.#sweep();
    if (this.#channels.has(asked.id)) throw channelIdNotUnique(asked.id);
    if (this.#channels.size >= channelLimit) throw badRequest('The sandbox keeps 10,000 channels.');
    const now = this.#now();
    const longest = fileId === undefined ? longestMs.changes : longestMs.file;
    const expiresAt = Math.min(asked.expiration ?? now + defaultMs, now + longest);
    if (expiresAt <= now) throw badRequest('The channel would have expired already.');
    const { sub, clientId } = access;
    const channel: Channel = {
      id: asked.id,
      token: asked.token,
      address: asked.address,
      expiresAt,
      fileId,
      messages: 0,
      resourceId: resourceIdOf(fileId ?? `changes of ${sub}`),
      resourceUri:
        fileId === undefined
          ? `${this.#url}/drive/v3/changes?alt=json`
          : `${this.#url}/drive/v3/files/${fileId}?alt=json`,
      owner: { sub, clientId },
    };
    this.#channels.set(channel.id, channel);
    this.#post(channel, { state: 'sync', changed: undefined });
    const { id, resourceId, resourceUri, token } = channel;
    return {
      kind: 'api#channel',
      id,
      resourceId,
      resourceUri,
      ...(token !== undefined && { token }),
      expiration: String(expiresAt),
    };
  }

  /** Stops a channel of the same account and client. Throws 404 if there is none. */
  stop(access: Granted, body: Buffer): void {
    const { id, resourceId } = readObject(body);
    const channel = typeof id === 'string' ? this.#channels.get(id) : undefined;
    const isTheirs = channel?.owner.sub === access.sub && channel.owner.clientId === access.clientId;
    if (channel === undefined || !isTheirs || channel.resourceId !== resourceId)
      throw channelNotFound(String(id), access.clientId.split('-', 1)[0] ?? '');
    this.#channels.delete(channel.id);
  }

  /** Notifies the channels that watch the file, or all files of its owner. It does not wait for their responses. */
  notify(
    fileId: string,
    { sub, state, changed }: { sub: string; state: string; changed?: string | undefined },
  ): void {
    this.#sweep();
    for (const channel of this.#channels.values()) {
      if (channel.fileId === fileId) this.#post(channel, { state, changed });
      else if (channel.fileId === undefined && channel.owner.sub === sub)
        this.#post(channel, { state: 'change', changed: undefined });
    }
  }

  /** The open channels, for the control routes. */
  list(): Channel[] {
    this.#sweep();
    return [...this.#channels.values()];
  }

  /** Aborts pending notifications. */
  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.all(this.#sending);
  }

  #sweep(): void {
    for (const { id, expiresAt } of this.#channels.values())
      if (expiresAt <= this.#now()) this.#channels.delete(id);
  }

  #post(channel: Channel, { state, changed }: { state: string; changed: string | undefined }): void {
    channel.messages += 1;
    const sending = fetch(channel.address, {
      method: 'POST',
      headers: {
        'content-type': 'application/json; utf-8',
        'user-agent': 'APIs-Google; (+https://developers.google.com/webmasters/APIs-Google.html)',
        'X-Goog-Channel-ID': channel.id,
        ...(channel.token !== undefined && { 'X-Goog-Channel-Token': channel.token }),
        'X-Goog-Channel-Expiration': new Date(channel.expiresAt).toUTCString(),
        'X-Goog-Resource-ID': channel.resourceId,
        'X-Goog-Resource-URI': channel.resourceUri,
        'X-Goog-Resource-State': state,
        ...(changed !== undefined && { 'X-Goog-Changed': changed }),
        'X-Goog-Message-Number': String(channel.messages),
      },
      redirect: 'manual',
      signal: AbortSignal.any([this.#closing.signal, AbortSignal.timeout(deliveryMs)]),
    })
      .then((answer) => answer.body?.cancel())
      .catch(() => {})
      .finally(() => this.#sending.delete(sending)) as Promise<void>;
    this.#sending.add(sending);
  }
}

function readChannel(body: Buffer) {
  const { id, type, address, token, expiration } = readObject(body);
  if (typeof id !== 'string' || !/^[A-Za-z0-9\-_+/=]{1,64}$/.test(id))
    throw badRequest('Channel id must match [A-Za-z0-9\\-_\\+/=]+');
  if (type !== 'web_hook' && type !== 'webhook') throw badRequest('Unknown channel type');
  if (typeof address !== 'string' || !URL.canParse(address)) throw badRequest('Invalid channel address');
  if (token !== undefined && (typeof token !== 'string' || token.length > 256))
    throw badRequest('Channel token is too long');
  const expires = expiration === undefined ? undefined : Number(expiration);
  if (expires !== undefined && !Number.isSafeInteger(expires)) throw badRequest('Invalid channel expiration');
  return { id, address, token, expiration: expires };
}

function readObject(body: Buffer): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(body.toString('utf8'));
    if (typeof value === 'object' && value !== null && !Array.isArray(value))
      return value as Record<string, unknown>;
  } catch {
    // The error below covers it.
  }
  throw badRequest('Parse Error');
}

function resourceIdOf(what: string): string {
  return createHash('sha256').update(what).digest('base64url').slice(0, 27);
}
