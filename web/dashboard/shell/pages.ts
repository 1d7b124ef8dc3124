import {
  IconActivity,
  IconChecklist,
  IconDatabase,
  IconFunction,
  IconHome,
  IconPlugConnected,
  IconPuzzle,
  IconSend,
  IconSettings,
  IconTerminal2,
} from '../../ui/icons.tsx';

/** The pages of the navigation and the command palette, in their order. */
export const pages = [
  { to: '/$environment/home', label: 'Home', icon: IconHome },
  { to: '/$environment/getting-started', label: 'Getting started', icon: IconChecklist },
  { to: '/$environment/integrations', label: 'Integrations', icon: IconPuzzle },
  { to: '/$environment/connections', label: 'Connections', icon: IconPlugConnected },
  { to: '/$environment/functions', label: 'Functions', icon: IconFunction },
  { to: '/$environment/records', label: 'Records', icon: IconDatabase },
  { to: '/$environment/playground', label: 'Playground', icon: IconTerminal2 },
  { to: '/$environment/activity', label: 'Activity', icon: IconActivity },
  { to: '/$environment/events', label: 'Events', icon: IconSend },
  { to: '/$environment/settings', label: 'Settings', icon: IconSettings },
] as const;
