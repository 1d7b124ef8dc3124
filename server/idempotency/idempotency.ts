/**
 * Requests with an Idempotency-Key: of equal ones, the first does the work, and all get its answer.
 *
 * Owns: the hooks of routes with `config.idempotent`, and with `store.ts` the table `idempotent_request`. Does not own: the
 * header's form and the list of routes (`http/idempotency-key.ts` and the routes). A request is equal to another of the same
 * environment, caller, method, path and key; it must also have the same query, body and headers that the route reads.
 *
 * Digests are HMACs, because a body may hold a secret that can be guessed, and answers are sealed: both with keys of the
 * environment, so they end with it.
 */
import { createHash, createHmac, type Hash } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import type { FastifyReply, FastifyRequest, FastifySchema, preParsingHookHandler } from 'fastify';
import type { Db } from '../db/pool.ts';
import { environmentKey } from '../environments/store.ts';
import { AppError } from '../errors.ts';
import type { Caller } from '../http/auth/caller.ts';
import { isStopping } from '../http/drain.ts';
import { readIdempotencyKey } from '../http/idempotency-key.ts';
import type { App } from '../http/server.ts';
import type { DataKey, Vault } from '../vault.ts';
import { findRequest, keepAnswer, type RequestId, renewEveryMs, renewLease, takeRequest } from './store.ts';

/** Below the time limit of a client's call (90 s by default), so that the caller learns why it has no answer. */
const maxWaitMs = 60_000;
const firstPauseMs = 20;
const maxPauseMs = 500;
/** Further headers would be those of this connection, such as its cookies. */
const keptHeaders = ['content-type', 'location'] as const;
const sealContext = 'idempotent request';

type Received = { key: string; bodyHash: Hash };
type Held = { id: RequestId; dataKey: DataKey; renewal: NodeJS.Timeout };
type Answer = { status: number; headers: Record<string, string>; body: string };

/** To be called before the routes are added. */
export function repeatAnswers(app: App, { db, vault, now }: { db: Db; vault: Vault; now: () => Date }): void {
  const received = new WeakMap<FastifyRequest, Received>();
  const held = new WeakMap<FastifyRequest, Held>();

  const receive: preParsingHookHandler = (request, _reply, payload, done) => {
    const key = readIdempotencyKey(request.headers);
    if (key !== undefined) {
      const bodyHash = createHash('sha256');
      // The parser listens in the same turn, so no part is lost for it.
      payload.on('data', (part: Buffer | string) => bodyHash.update(part));
      received.set(request, { key, bodyHash });
    }
    done(null, payload);
  };

  async function begin(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply | undefined> {
    const given = received.get(request);
    if (given === undefined) return undefined;
    const { caller } = request;
    const { environmentId } = caller;
    const dataKey = await environmentKey(db, { environmentId, vault });
    const { digest, fingerprint } = digestsOf(request, { ...given, dataKey });
    const id = { environmentId, digest };
    const keyId = caller.kind === 'key' ? caller.keyId : undefined;
    const endsAt = performance.now() + maxWaitMs;
    let hasWaited = false;
    for (let pauseMs = firstPauseMs; ; pauseMs = Math.min(2 * pauseMs, maxPauseMs)) {
      const found = await findRequest(db, id);
      if (found !== undefined && !found.fingerprint.equals(fingerprint))
        throw new AppError('idempotency_key_reused');
      if (found?.answer && (found.isFinal || hasWaited)) {
        // The rights of the caller may have ended meanwhile.
        if (hasWaited) await request.callerNow();
        return replay(reply, dataKey.openJson(found.answer, sealContext) as Answer);
      }
      if (found === undefined || found.answer !== null) {
        if (await takeRequest(db, id, { fingerprint, keyId, at: now() })) break;
        continue;
      }
      // The node that did the work is lost.
      if (!found.isLeased) throw new AppError('outcome_unknown');
      if (performance.now() >= endsAt || isStopping(app) || reply.raw.destroyed)
        throw new AppError('request_in_progress', undefined, { retryAfterS: 1 });
      await pause(pauseMs);
      hasWaited = true;
    }
    request.outlivesCaller = true;
    // A failed renewal is followed by another, or the lease ends: then the outcome is unknown until the answer is stored.
    const renewal = setInterval(() => renewLease(db, id).catch(() => {}), renewEveryMs).unref();
    held.set(request, { id, dataKey, renewal });
    return undefined;
  }

  async function keep(request: FastifyRequest, reply: FastifyReply, payload: unknown): Promise<unknown> {
    const own = held.get(request);
    if (own === undefined) return payload;
    held.delete(request);
    const { id, dataKey, renewal } = own;
    try {
      const answer = dataKey.sealJson(answerOf(reply, payload), sealContext);
      await keepAnswer(db, id, { answer, isFinal: isFinal(reply.statusCode) });
    } catch (error) {
      // The work is done, so the caller gets its answer; repeats are told that the outcome is unknown.
      request.log.warn({ err: error }, 'the answer of an idempotent request was not stored');
    } finally {
      clearInterval(renewal);
    }
    return payload;
  }

  app.addHook('onRoute', (route) => {
    if (route.config?.idempotent !== true) return;
    route.preParsing = [...[route.preParsing ?? []].flat(), receive];
    route.preHandler = [...[route.preHandler ?? []].flat(), begin];
    route.onSend = [...[route.onSend ?? []].flat(), keep];
  });
}

function digestsOf(
  request: FastifyRequest,
  { key, bodyHash, dataKey }: Received & { dataKey: DataKey },
): { digest: Buffer; fingerprint: Buffer } {
  const { caller, method, params, routeOptions, url, raw } = request;
  const secret = dataKey.subkey('idempotent requests');
  const digest = (parts: unknown[]) => createHmac('sha256', secret).update(JSON.stringify(parts)).digest();
  const query = url.split('?').slice(1).join('?');
  const headers = headersRead(routeOptions.schema).map((name) => raw.headers[name] ?? null);
  return {
    digest: digest([callerText(caller), method, routeOptions.url, params, key]),
    fingerprint: digest([query, headers, bodyHash.digest('hex')]),
  };
}

function callerText(caller: Caller): string {
  if (caller.kind === 'key') return `key ${caller.keyId}`;
  return caller.kind === 'user' ? `user ${caller.userId}` : `session ${caller.sessionId}`;
}

/** The names of the headers that change what the route does. */
function headersRead(schema: FastifySchema | undefined): string[] {
  const { shape = {} } = (schema?.headers ?? {}) as { shape?: object };
  return Object.keys(shape).sort();
}

/** Refusals of the caller, and answers that request a retry, are not kept. */
function isFinal(status: number): boolean {
  return status < 500 && ![401, 408, 429].includes(status);
}

function answerOf(reply: FastifyReply, payload: unknown): Answer {
  const headers = keptHeaders.flatMap((name) => {
    const value = reply.getHeader(name);
    return value === undefined ? [] : [[name, String(value)] as const];
  });
  const body = payload instanceof Uint8Array ? Buffer.from(payload).toString() : (payload ?? '');
  if (typeof body !== 'string') throw new TypeError('The answer of an idempotent route is not a text.');
  return { status: reply.statusCode, headers: Object.fromEntries(headers), body };
}

function replay(reply: FastifyReply, { status, headers, body }: Answer): FastifyReply {
  return reply.code(status).headers(headers).header('idempotency-replayed', 'true').send(body);
}
