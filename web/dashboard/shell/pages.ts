import { IconActivity, IconChecklist, IconPlugConnected, IconPuzzle } from '@tabler/icons-react';

/** The pages that the navigation and the command palette lead to, in their order. */
export const pages = [
  { to: '/$environment/getting-started', label: 'Getting started', icon: IconChecklist },
  { to: '/$environment/integrations', label: 'Integrations', icon: IconPuzzle },
  { to: '/$environment/connections', label: 'Connections', icon: IconPlugConnected },
  { to: '/$environment/activity', label: 'Activity', icon: IconActivity },
] as const;
