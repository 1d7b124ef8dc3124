/** Why the last attempt failed, and what the owner can do while the link is valid. */
export function failureText(cause: string, { isOver }: { isOver: boolean }): string {
  if (cause === 'another_account')
    return 'The owner chose another account. The connection needs the same account as before.';
  const text =
    cause === 'access_denied'
      ? 'Access was declined at the provider.'
      : `The account was not connected: ${cause.replaceAll('_', ' ')}.`;
  return isOver ? text : `${text} The owner can open the link again.`;
}
