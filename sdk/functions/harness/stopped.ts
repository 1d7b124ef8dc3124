/** What ends a run that was told to stop. */
export function stopped(): Error {
  const error = new Error('The run is to stop; the next one goes on from its checkpoint.');
  return Object.assign(error, { code: 'stopped' });
}
