import { reasonOf as reasonHere } from '../reason.ts';
import { PeerError } from './client.ts';

/** Why something of the peer did not come over, in a word and a sentence; undefined where the run cannot go on. */
export function reasonOf(error: unknown): { reason: string; detail: string } | undefined {
  return error instanceof PeerError ? { reason: error.code, detail: error.message } : reasonHere(error);
}
