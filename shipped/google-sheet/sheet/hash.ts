/** Hashes of cells and rows, for comparisons within one sheet. Not for security. */
import { hash } from 'node:crypto';
import type { RawCell } from './cells.ts';

/** 32 bits of FNV-1a over a cell's type and text; an empty cell is 0. */
export function hashOf(cell: RawCell): number {
  if (cell === undefined || cell === null || cell === '') return 0;
  const text = typeof cell === 'string' ? cell : `${typeof cell}:${cell}`;
  let value = 0x811c9dc5;
  for (let at = 0; at < text.length; at++) value = Math.imul(value ^ text.charCodeAt(at), 0x01000193);
  // The finalizer of MurmurHash3 spreads the values, so that the smallest of many hashes are a fair sample.
  value = Math.imul(value ^ (value >>> 16), 0x85ebca6b);
  value = Math.imul(value ^ (value >>> 13), 0xc2b2ae35);
  return (value ^ (value >>> 16)) >>> 0;
}

/** 96 bits of SHA-256, as 16 characters. */
export function digestOf(text: string): string {
  return hash('sha256', text, 'base64url').slice(0, 16);
}

const digits = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';

/** 24 bits of a cell's hash, as 4 characters. */
export function signatureOf(cell: RawCell): string {
  const value = hashOf(cell);
  return (
    digits[value & 63]! +
    digits[(value >>> 6) & 63]! +
    digits[(value >>> 12) & 63]! +
    digits[(value >>> 18) & 63]!
  );
}

export const signatureLength = 4;
export const emptySignature = signatureOf(null);
