import { createOnEvent } from 'nango';

export default createOnEvent({
  description: 'Refuses connections whose spreadsheets cannot be read.',
  event: 'validate-connection',
  exec: async (nango) => {
    const { status } = await nango.get({ endpoint: '/v4/spreadsheets/probe', retries: 1 }).catch((error) => {
      if (error.response?.status === 404) return { status: 200 };
      throw error;
    });
    if (status >= 400) throw new Error('The account cannot read spreadsheets.');
  },
});
