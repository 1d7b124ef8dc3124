import { text } from '../http/text.ts';

/** On one line: a name stands in mails, beside links. */
export const personName = text({ min: 1, max: 100 }).refine(
  (name) => !/[\p{Cc}\u2028\u2029]/u.test(name),
  'holds a line break or another control character',
);

/** What another service calls somebody, as a name that may be theirs here. */
export function asPersonName(told: string): string {
  return told
    .toWellFormed()
    .replace(/[\p{Cc}\u2028\u2029]+/gu, ' ')
    .slice(0, 100)
    .toWellFormed();
}
