import { json, type Reply } from '../http.ts';

/**
 * Where a fault strikes: on the authorization page, when consent is sent back, when a code is exchanged, when a
 * token is refreshed, when a client asks for itself, at the token endpoint whatever the grant, at revocation, or at an
 * API.
 */
export type FaultPoint =
  | 'authorize'
  | 'consent'
  | 'exchange'
  | 'refresh'
  | 'client'
  | 'token'
  | 'revoke'
  | 'api';

/**
 * What a fault does. `answer` replaces the work; `alter` does it and changes the answer; `slow` waits, then works;
 * `slow_after` works, then waits; `hang` never answers and nothing is done; `reset` breaks the connection and
 * nothing is done; `reset_after` does the work and breaks the connection instead of answering; `truncate` sends
 * half of the answer; `page` is an error page that never comes back to the client; `special` is done by the code
 * at that point, which asks for the case by name.
 */
type FaultEffect =
  | { kind: 'answer'; reply: (subject: { projectNumber: string }) => Reply }
  | { kind: 'alter'; alter: (reply: Reply) => Reply }
  | { kind: 'page'; status: number; code: string; message: string }
  | { kind: 'slow' | 'slow_after' | 'hang' | 'reset' | 'reset_after' | 'truncate' | 'special' };

/** One line of the table of faults. */
export interface FaultCase {
  point: FaultPoint;
  /** What happens while it is on, for a person. */
  text: string;
  effect: FaultEffect;
}

/** A case that the code at its point asks for by name. */
export function special(point: FaultPoint, text: string): FaultCase {
  return { point, text, effect: { kind: 'special' } };
}

/** A case that breaks or delays the answer, whatever it is. */
export function broken(
  point: FaultPoint,
  kind: 'slow' | 'slow_after' | 'hang' | 'reset' | 'reset_after' | 'truncate',
  text: string,
): FaultCase {
  return { point, text, effect: { kind } };
}

/** A case that answers in place of the work. */
export function answered(
  point: FaultPoint,
  text: string,
  reply: (subject: { projectNumber: string }) => Reply,
): FaultCase {
  return { point, text, effect: { kind: 'answer', reply } };
}

/** A case that does the work and changes one thing in the JSON object that is answered, unless that is an error. */
export function altered(
  point: FaultPoint,
  text: string,
  change: (body: Record<string, unknown>) => void,
): FaultCase {
  const alter = (reply: Reply): Reply => {
    if (reply.status !== 200) return reply;
    const body = JSON.parse(reply.body.toString()) as Record<string, unknown>;
    change(body);
    return { ...json(200, body), headers: reply.headers };
  };
  return { point, text, effect: { kind: 'alter', alter } };
}

/** An HTML answer, where a client expects JSON. */
export function htmlAnswer(status: number, body: string): Reply {
  return { status, headers: { 'content-type': 'text/html; charset=utf-8' }, body };
}

/** The page for automated queries, which Google sends in place of JSON to callers that look like robots. */
export const ABUSE_PAGE = `<html><head><meta http-equiv="content-type" content="text/html; charset=utf-8"/><title>Sorry...</title></head>
<body><h1>We're sorry...</h1><p>... but your computer or network may be sending automated queries. To protect our users, we can't process your request right now.</p></body></html>
`;

/** A page of an intermediary that says nothing of what went wrong. */
export const HTML_PAGE = `<!DOCTYPE html>
<html lang="en"><head><title>Sign in</title></head><body><p>Sign in to the network to go on.</p></body></html>
`;
